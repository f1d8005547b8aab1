//! Chart, components, image and guide have the same version, and the manifests run that image and contain no links.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use sluice_tests::sources::root;

fn read(path: &str) -> Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| format!("read {path}"))
}

/// A field of `[workspace.package]`.
fn of_workspace(field: &str) -> Result<String> {
    let manifest = read("Cargo.toml")?;
    let (_, package) = manifest
        .split_once("[workspace.package]")
        .context("a workspace")?;
    let line = package
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{field} = ")));
    Ok(line
        .context("a field of the workspace")?
        .trim_matches('"')
        .to_owned())
}

#[test]
fn all_ways_of_installing_have_the_version_of_the_workspace() -> Result<()> {
    let version = of_workspace("version")?;
    let mut parts = version.split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let series = format!("- major: {major}\n    minor: {minor}\n");
    for (path, text) in [
        ("manifests/chart/Chart.yaml", format!("\nversion: {version}\n")),
        ("manifests/chart/Chart.yaml", format!("\nappVersion: {version}\n")),
        (
            "manifests/base/deployment.yaml",
            format!("image: docker.io/library/sluice:{version}\n"),
        ),
        ("manifests/clusterctl/metadata.yaml", series),
        (
            "docs/install.md",
            format!("--runtime-extension sluice:v{version} "),
        ),
        ("docs/install.md", format!("docker build -t sluice:{version} .")),
        ("Dockerfile", format!("docker build -t sluice:{version} .")),
    ] {
        ensure!(
            read(path)?.contains(&text),
            "{path} has no {text:?}, but Cargo.toml has version {version}"
        );
    }
    Ok(())
}

#[test]
fn the_image_is_built_as_scenario_image_does_and_run_as_manifests_do() -> Result<()> {
    let dockerfile = read("Dockerfile")?;
    let rust = of_workspace("rust-version")?;
    let deployment = read("manifests/base/deployment.yaml")?;
    let user = "65532";
    for line in [
        format!("FROM rust:{rust}-bookworm AS build"),
        "RUN image/rootfs.sh target/release/sluice /rootfs".to_owned(),
        "FROM scratch".to_owned(),
        "COPY --from=build /rootfs /".to_owned(),
        format!("USER {user}:{user}"),
        "ENTRYPOINT [\"/sluice\"]".to_owned(),
        "CMD [\"serve\"]".to_owned(),
    ] {
        ensure!(
            dockerfile.lines().any(|found| found == line),
            "the Dockerfile has no line {line:?}"
        );
    }
    for field in [
        format!("runAsUser: {user}"),
        "readOnlyRootFilesystem: true".to_owned(),
    ] {
        ensure!(deployment.contains(&field), "the Deployment has no {field:?}");
    }
    Ok(())
}

/// The GitRepository of Flux drops symbolic links, and Git on Windows writes text files for them.
#[test]
fn delivered_directories_contain_no_symbolic_links() -> Result<()> {
    let mut directories: Vec<PathBuf> = ["crds", "examples", "manifests"]
        .iter()
        .map(|directory| root().join(directory))
        .collect();
    while let Some(directory) = directories.pop() {
        let entries = fs::read_dir(&directory).with_context(|| format!("list {}", directory.display()))?;
        for entry in entries {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            ensure!(!kind.is_symlink(), "{} is a symbolic link", path.display());
            if kind.is_dir() {
                directories.push(path);
            }
        }
    }
    Ok(())
}

/// An API server selects its client certificate by host and port of the webhook.
#[test]
fn api_servers_present_their_certificate_to_the_webhooks() -> Result<()> {
    let webhooks = ["webhooks.yaml", "gate-webhook.yaml"].map(|file| read(&format!("manifests/base/{file}")));
    let webhooks = webhooks.into_iter().collect::<Result<String>>()?;
    let field = |name: &str| {
        let found: Vec<&str> = webhooks
            .lines()
            .filter_map(|line| line.strip_prefix(&format!("        {name}: ")))
            .collect();
        match found.as_slice() {
            [first, others @ ..] if others.iter().all(|other| other == first) => Ok(*first),
            _ => anyhow::bail!("webhooks have {name} {found:?}"),
        }
    };
    let user = format!(
        "  - name: {}.{}.svc:{}\n",
        field("name")?,
        field("namespace")?,
        field("port")?
    );
    let kubeconfig = read("manifests/kube-apiserver/webhooks.yaml")?;
    ensure!(kubeconfig.contains(&user), "the kubeconfig has no user {user:?}");
    let configuration = read("manifests/kube-apiserver/admission.yaml")?;
    let file = "kubeConfigFile: /etc/kubernetes/sluice/webhooks.yaml";
    ensure!(
        configuration.matches(file).count() == 2,
        "both plugins read {file:?}: {configuration}"
    );
    Ok(())
}
