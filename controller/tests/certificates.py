"""Certificates for tests: a CA, and what it signs."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Authority:
    """A CA with its files in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = _key()
        certificate = _begun(self._name, self._name, self._key)
        certificate = certificate.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        certificate = certificate.add_extension(usage, critical=True)
        self.file = self.folder / "ca.pem"
        self.file.write_bytes(_pem(certificate.sign(self._key, hashes.SHA256())))

    def issue(self, name: str, *names: x509.GeneralName, is_der: bool = False) -> tuple[Path, Path]:
        """The files of a certificate with these names, and of its key."""
        key = _key()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = _begun(subject, self._name, key)
        certificate = certificate.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        usage = x509.KeyUsage(True, True, True, True, False, False, False, False, False)
        certificate = certificate.add_extension(usage, critical=True)
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = certificate.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        if names:
            certificate = certificate.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = certificate.sign(self._key, hashes.SHA256())
        # Names of files that some libraries would split at the comma, and endings that say nothing of their form.
        file, key_file = self.folder / f"{name}, own.crt", self.folder / f"{name}, own.key"
        file.write_bytes(signed.public_bytes(serialization.Encoding.DER) if is_der else _pem(signed))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.DER if is_der else serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return file, key_file


def local(name: str = "localhost") -> list[x509.GeneralName]:
    """The names of a server on this machine."""
    return [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]


def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _begun(subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=30))


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
