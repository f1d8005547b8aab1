//! The file system of the image, put together as the Dockerfile does it, and processes in it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

use super::replica::binary;
use crate::components::Isolation;
use crate::processes::process::Launch;
use crate::sources::root;
use crate::stack::StackCore;

/// Where the Deployment mounts the certificate; the harness has the kubeconfig there, too.
pub(super) const CERTIFICATES: &str = "/tmp/k8s-webhook-server/serving-certs";

/// User and group that the manifests run Sluice as.
const USER: u32 = 65532;

/// Emulates a container runtime for files and users: mounts the file system read-only, with the certificate and /proc, and sets the user.
/// An unprivileged user cannot change to another user.
const ENTER: &str = r#"
image=$1 certificates=$2 user=$3
shift 3
mount --bind "$image" "$image"
mount -o remount,bind,ro "$image"
mount --rbind /proc "$image/proc"
mount --bind "$certificates" "$image/tmp/k8s-webhook-server/serving-certs"
cd /
if [ "$user" = 0 ]; then
  exec chroot "$image" /sluice "$@"
fi
exec chroot --userspec="$user:$user" --groups="" "$image" /sluice "$@"
"#;

/// A directory with the file system of the image.
#[derive(Debug, Clone)]
pub struct Image {
    directory: PathBuf,
    isolation: Isolation,
}

impl Image {
    /// Runs the steps of the Dockerfile after the build of the binary.
    pub async fn build(core: &StackCore) -> Result<Self> {
        let directory = core.directory().subdirectory("image")?.join("rootfs");
        let output = Command::new(root().join("image/rootfs.sh"))
            .arg(binary()?)
            .arg(&directory)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("start image/rootfs.sh")?;
        ensure!(
            output.status.success(),
            "image/rootfs.sh: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(Self {
            directory,
            isolation: core.binaries().isolation(),
        })
    }

    /// Its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The user that a process in it has, as the machine counts users; none where it is the one of the harness.
    #[must_use]
    pub fn user(&self) -> Option<u32> {
        (self.isolation == Isolation::Mounts).then_some(USER)
    }

    /// A launch of its program, with the files of `certificates` where the Deployment mounts the certificate.
    pub(super) fn launch(&self, name: &str, certificates: &Path) -> Launch {
        Launch::new(name, "unshare")
            // chroot is there.
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .args([
                self.isolation.flags(),
                "--propagation",
                "private",
                "sh",
                "-euc",
                ENTER,
                "enter",
            ])
            .arg(&self.directory)
            .arg(certificates)
            .arg(self.user().unwrap_or_default().to_string())
    }
}
