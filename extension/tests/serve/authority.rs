//! Certificates, and a directory that holds them as the kubelet mounts a Secret.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use sluice::server::serve::CertificateFiles;
use tempfile::TempDir;

/// An authority that signs serving and client certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.as_ref().pem()
    }

    pub(crate) fn sign(&self) -> Pair {
        self.sign_until(2100)
    }

    pub(crate) fn sign_until(&self, year: i32) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

/// A directory whose files go through the link `..data`, which is swapped as a whole.
pub(crate) struct Mount {
    dir: TempDir,
    swaps: usize,
}

impl Mount {
    pub(crate) fn new(pair: &Pair) -> Self {
        let mut mount = Self {
            dir: tempfile::tempdir().unwrap(),
            swaps: 0,
        };
        mount.swap(pair);
        for name in ["tls.crt", "tls.key"] {
            symlink(Path::new("..data").join(name), mount.path().join(name)).unwrap();
        }
        mount
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn files(&self) -> CertificateFiles {
        CertificateFiles::in_dir(self.path())
    }

    pub(crate) fn swap(&mut self, pair: &Pair) {
        self.swaps += 1;
        let version = format!("..version-{}", self.swaps);
        let dir = self.path().join(&version);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("tls.crt"), &pair.certificate).unwrap();
        fs::write(dir.join("tls.key"), &pair.key).unwrap();
        let next = self.path().join("..data_tmp");
        symlink(&version, &next).unwrap();
        fs::rename(next, self.path().join("..data")).unwrap();
    }
}
