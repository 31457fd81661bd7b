import org.apache.kafka.common.security.auth.AuthenticationContext;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SaslAuthenticationContext;
import org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder;

/** Names a user by its token and by the extensions that came with it: rights then need both to have arrived. */
public class ExtensionPrincipals extends DefaultKafkaPrincipalBuilder {
    public ExtensionPrincipals() {
        super(null, null);
    }

    public KafkaPrincipal build(AuthenticationContext context) {
        javax.security.sasl.SaslServer server = ((SaslAuthenticationContext) context).server();
        Object cluster = server.getNegotiatedProperty("logicalCluster");
        Object pool = server.getNegotiatedProperty("identityPoolId");
        return new KafkaPrincipal("User", server.getAuthorizationID() + "." + cluster + "." + pool);
    }
}
