"""Certificates for the embedded broker and its clients, created with the `openssl` command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turnout.kafka.security import openssl

DAYS = 365
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its private key, both PEM."""

    file: Path
    key_file: Path

    def keystore(self, password: str) -> Path:
        """Write the certificate and key as a PKCS#12 key store beside them; return its path."""
        store = self.file.with_suffix(".p12")
        # The password is passed by standard input, because other users can see arguments.
        openssl(
            "pkcs12", "-export", "-in", self.file, "-inkey", self.key_file, "-name", "key", "-out", store,
            "-passout", "stdin", given=password,
        )  # fmt: skip
        return store


class Authority:
    """A certificate authority in a folder; an existing one is reused."""

    def __init__(self, folder: Path, name: str = "Turnout trial authority") -> None:
        self._folder = folder
        self.ca_file = folder / "ca.pem"
        self._key_file = folder / "ca.key"
        if self._key_file.exists():
            return
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Python 3.13 accepts only authorities with a key usage.
        openssl("req", "-x509", *_KEY, "-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
                 "-days", DAYS, "-keyout", self._key_file, "-out", self.ca_file)  # fmt: skip

    def issue(self, name: str, hosts: Sequence[str] = (), days: int = DAYS, key_password: str = "") -> Certificate:
        """Issue a certificate for `name` (its CN), valid for `hosts`; an earlier one with this name is replaced."""
        made = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        alternatives = ",".join(f"{'IP' if host[-1].isdigit() else 'DNS'}:{host}" for host in hosts)
        extensions.write_text(
            "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
            + (f"subjectAltName={alternatives}\n" if hosts else "basicConstraints=CA:FALSE\n")
        )
        openssl("req", *_KEY, "-subj", f"/CN={name}", "-keyout", made.key_file, "-out", request)
        signer = ("-CA", self.ca_file, "-CAkey", self._key_file, "-CAcreateserial")
        openssl("x509", "-req", "-in", request, *signer, "-days", days, "-extfile", extensions, "-out", made.file)
        if key_password:
            protect = ("-in", made.key_file, "-out", made.key_file.with_suffix(".new"), "-passout", "stdin")
            openssl("pkcs8", "-topk8", *protect, given=key_password)
            made.key_file.with_suffix(".new").replace(made.key_file)
        request.unlink()
        extensions.unlink()
        return made
