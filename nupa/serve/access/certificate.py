# SPDX-License-Identifier: BSD-3-Clause
"""A self-signed certificate, for a server that was given none."""

from __future__ import annotations

import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

_VALID = datetime.timedelta(days=365)


class Certificate(NamedTuple):
    """Files of a certificate and its key, and the SHA-256 fingerprint to compare."""

    cert: Path
    key: Path
    fingerprint: str


def make_certificate(names: list[str], folder: Path) -> Certificate:
    """Writes a certificate for *names*, which are host names and addresses, and its key.

    The key is of NIST P-256; both files are readable by this user alone.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    now = datetime.datetime.now(datetime.UTC)
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks of clients may be behind ours.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=False)
        .add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = folder / "cert.pem", folder / "key.pem"
    _write(cert_path, made.public_bytes(serialization.Encoding.PEM))
    _write(
        key_path,
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
    return Certificate(cert_path, key_path, made.fingerprint(hashes.SHA256()).hex(":"))


def _name(name: str):  # type: ignore[no-untyped-def]
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write(path: Path, data: bytes) -> None:
    path.touch(0o600)
    path.write_bytes(data)
