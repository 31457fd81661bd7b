import org.apache.kafka.common.security.auth.AuthenticationContext;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SaslAuthenticationContext;
import org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder;

/** Builds a user name from the token and its SASL extensions, so that rights apply only if both have arrived. */
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
