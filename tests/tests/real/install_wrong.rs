//! Failures of an installation: docs/install.md has each error message, and its remedy works.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use sluice_tests::components::ClusterApiRelease;
use sluice_tests::install::{Guide, Said, Site};
use sluice_tests::sources::root;
use sluice_tests::stack::StackCore;
use sluice_tests::stack::capi::{ClusterApi, RuntimeSdk};

/// One management cluster, and the commands of the guide.
struct Operator {
    site: Site,
    guide: Guide,
    /// Where a certificate of one's own lies.
    files: String,
}

impl Operator {
    async fn run(&self, commands: &str) -> Result<Said> {
        self.site.shell().run(commands, &[("FILES", &self.files)]).await
    }

    async fn tries(&self, commands: &str) -> Result<String> {
        self.run(commands).await?.well()
    }

    async fn follows(&self, mark: &str) -> Result<String> {
        let said = self.tries(&self.guide.commands(mark)?).await;
        said.with_context(|| mark.to_owned())
    }

    /// The commands of a mark are refused with a text that docs/install.md has a way out of.
    async fn is_refused(&self, mark: &str, text: &str) -> Result<()> {
        ensure!(
            self.guide.says(&format!("| `{text}`")) || self.guide.says(&format!("{text}` |")),
            "docs/install.md has no row {text:?}"
        );
        let said = self.run(&self.guide.commands(mark)?).await?;
        said.refused(text)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_installations_can_be_repaired() -> Result<()> {
    let core = StackCore::start("wrong").await?;
    let site = Site::prepare(&core, "wrong").await?;
    let files = site.shell().home().join("certificate");
    fs::create_dir_all(&files)?;
    let certificate = site.api().pki().server_certificate()?;
    fs::write(files.join("tls.crt"), certificate.certificate)?;
    fs::write(files.join("tls.key"), certificate.key)?;
    fs::write(files.join("ca.crt"), site.authority())?;
    let operator = Operator {
        files: files.display().to_string(),
        guide: Guide::read()?,
        site,
    };
    columns(&operator).await?;
    nothing_is_there(&operator).await?;
    another_name(&operator).await?;
    definitions_of_others(&operator).await?;

    let cluster_api = ClusterApi::start(&core, operator.site.api(), ClusterApiRelease::Newest).await?;
    gate_off(&operator, &cluster_api).await?;
    cluster_api.kill().await?;
    core.directory().close().await
}

/// Definition of Clusters, and a Cluster with the conditions of Sluice.
const LABELLED: &str = r#"
kubectl apply -f - <<END
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: clusters.cluster.x-k8s.io
spec:
  group: cluster.x-k8s.io
  scope: Namespaced
  names: {kind: Cluster, listKind: ClusterList, plural: clusters, singular: cluster}
  versions:
    - name: v1beta2
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
END
kubectl wait --for=condition=Established --timeout=1m crd/clusters.cluster.x-k8s.io
kubectl create -f - <<END
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata:
  name: one
  namespace: default
  labels: {run.tanzu.vmware.com/tkr: v1.36.3---a.1}
spec:
  topology: {version: v1.36.3}
status:
  phase: Provisioned
  conditions:
    - {type: RollingOut, status: "False"}
    - {type: ReleaseCompatible, status: "True"}
    - {type: UpdatesAvailable, status: "True", message: "[v1.36.4]"}
END
"#;

/// kubectl prints the columns of docs/reference/releases.md with the file in the examples.
async fn columns(operator: &Operator) -> Result<()> {
    let page = fs::read_to_string(root().join("docs/reference/releases.md"))?;
    let command = "kubectl get clusters -A -o custom-columns-file=examples/clusters.columns";
    ensure!(
        page.lines().any(|line| line == command),
        "docs/reference/releases.md does not name {command:?}"
    );
    operator.tries(LABELLED).await?;
    let printed = operator.tries(command).await?;
    let rows: Vec<Vec<&str>> = printed
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let expected = [
        [
            "NAMESPACE",
            "NAME",
            "RELEASE",
            "VERSION",
            "PHASE",
            "ROLLINGOUT",
            "COMPATIBLE",
            "UPDATES",
        ],
        [
            "default",
            "one",
            "v1.36.3---a.1",
            "v1.36.3",
            "Provisioned",
            "False",
            "True",
            "[v1.36.4]",
        ],
    ];
    ensure!(rows == expected, "{printed}");
    operator
        .tries("kubectl delete crd clusters.cluster.x-k8s.io")
        .await
        .map(drop)
}

/// Neither Cluster API nor cert-manager nor the system namespace.
async fn nothing_is_there(operator: &Operator) -> Result<()> {
    operator
        .site
        .delete_definitions("kubectl delete crd extensionconfigs.runtime.cluster.x-k8s.io")
        .await?;
    operator
        .is_refused("helm", "no matches for kind \"ExtensionConfig\"")
        .await?;
    operator.site.restore_definitions().await?;
    operator
        .site
        .delete_definitions("kubectl delete crd certificates.cert-manager.io issuers.cert-manager.io")
        .await?;
    operator
        .is_refused("helm", "no matches for kind \"Certificate\"")
        .await?;
    operator.follows("certificate").await?;
    operator
        .is_refused("helm with a certificate", "namespaces \"tkg-system\" not found")
        .await?;
    operator.follows("prepare").await?;
    let notes = operator.follows("helm with a certificate").await?;
    ensure!(!notes.contains("WARNING"), "{notes}");
    Ok(())
}

/// The ExtensionConfig gets another name: the old one stays until its deletion, and the notes report it.
async fn another_name(operator: &Operator) -> Result<()> {
    let commands = "helm upgrade sluice manifests/chart --namespace sluice-system --reset-then-reuse-values \
         --set extensionConfig.name=gate,replicas=1,flags.control-plane-group={a.example.com,b.example.com}";
    let notes = operator.tries(commands).await?;
    for text in [
        "ExtensionConfig \"sluice\" registers Sluice, too",
        "kubectl delete extensionconfig sluice",
        "with one replica",
    ] {
        ensure!(notes.contains(text), "{text:?} is not in {notes}");
    }
    let arguments = operator
        .tries("kubectl get deployment --namespace sluice-system sluice --output jsonpath='{.spec.template.spec.containers[0].args}'")
        .await?;
    for flag in [
        "--extension-config=gate",
        "--control-plane-group=a.example.com",
        "--control-plane-group=b.example.com",
    ] {
        ensure!(arguments.contains(flag), "{flag} is not in {arguments}");
    }
    let registered = operator
        .tries("kubectl get extensionconfigs --output name")
        .await?;
    ensure!(registered.lines().count() == 2, "{registered}");
    operator.follows("unregister").await?;
    let back = "helm upgrade sluice manifests/chart --namespace sluice-system --reset-then-reuse-values --set replicas=2";
    let notes = operator.tries(back).await?;
    ensure!(!notes.contains("WARNING"), "{notes}");
    operator
        .tries("kubectl delete extensionconfig gate")
        .await
        .map(drop)
}

/// Definitions are there that this release of Helm has not installed.
async fn definitions_of_others(operator: &Operator) -> Result<()> {
    operator.follows("uninstall helm").await?;
    let commands = operator.guide.commands("delete the definitions")?;
    operator.site.delete_definitions(&commands).await?;
    earlier_versions(operator).await?;
    operator
        .is_refused("helm with a certificate", "invalid ownership metadata")
        .await?;
    let commands = operator.guide.commands("helm with a certificate")?;
    operator.tries(&format!("{commands} --take-ownership")).await?;
    Ok(())
}

/// Definition of releases that stores v1alpha1, with a release; then the definition stores v1alpha3.
const EARLIER: &str = r#"
cat > "$HOME/earlier.yaml" <<END
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: tanzukubernetesreleases.run.tanzu.vmware.com
spec:
  group: run.tanzu.vmware.com
  scope: Cluster
  names:
    kind: TanzuKubernetesRelease
    listKind: TanzuKubernetesReleaseList
    plural: tanzukubernetesreleases
    singular: tanzukubernetesrelease
  versions:
    - name: v1alpha1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    - name: v1alpha3
      served: true
      storage: false
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
END
kubectl apply -f "$HOME/earlier.yaml"
kubectl wait --for=condition=Established --timeout=1m crd/tanzukubernetesreleases.run.tanzu.vmware.com
kubectl create -f - <<END
apiVersion: run.tanzu.vmware.com/v1alpha1
kind: TanzuKubernetesRelease
metadata:
  name: v1.36.3---earlier.1
spec:
  version: v1.36.3+earlier.1
  kubernetes: {version: v1.36.3}
END
sed -e 's/storage: true/storage: was/' -e 's/storage: false/storage: true/' -e 's/storage: was/storage: false/' "$HOME/earlier.yaml" |
  kubectl apply -f -
"#;

/// The API server has stored a release in an earlier version: docs/migrating.md migrates it before the definitions are applied.
async fn earlier_versions(operator: &Operator) -> Result<()> {
    let page = fs::read_to_string(root().join("docs/migrating.md"))?;
    let section = page
        .split_once("## Check the stored versions")
        .and_then(|(_, rest)| rest.split_once("## Stop what was there before"));
    let (section, _) = section.context("docs/migrating.md has no sections about stored versions")?;
    let guide = Guide::of(section)?;

    operator.tries(EARLIER).await?;
    let preflight = guide.commands("stored versions")?;
    let stored = operator.tries(&preflight).await?;
    ensure!(stored.contains("v1alpha1"), "{stored}");
    let text = "must remain in spec.versions";
    ensure!(
        operator.guide.says(text) && guide.says(text),
        "docs/install.md and docs/migrating.md do not name {text:?}"
    );
    operator.run("kubectl apply -k crds").await?.refused(text)?;
    for block in guide.blocks().iter().filter(|block| block.run.is_err()) {
        operator.tries(&block.commands).await?;
    }
    let stored = operator.tries(&preflight).await?;
    ensure!(stored.trim() == r#"["v1alpha3"]"#, "{stored}");
    operator.tries("kubectl apply -k crds").await?;
    let release = "tanzukubernetesreleases v1.36.3---earlier.1";
    let version = format!("kubectl get {release} --output jsonpath='{{.apiVersion}} {{.spec.version}}'");
    let version = operator.tries(&version).await?;
    ensure!(
        version.trim() == "run.tanzu.vmware.com/v1alpha3 v1.36.3+earlier.1",
        "{version}"
    );
    operator
        .tries(&format!("kubectl delete {release}"))
        .await
        .map(drop)
}

/// Cluster API runs without its feature gate.
async fn gate_off(operator: &Operator, cluster_api: &ClusterApi) -> Result<()> {
    cluster_api.restart_with(RuntimeSdk::Off).await?;
    operator.follows("unregister").await?;
    operator
        .is_refused(
            "helm with a certificate",
            "can be set only if the RuntimeSDK feature flag is enabled",
        )
        .await?;
    cluster_api.restart().await?;
    operator.follows("helm with a certificate").await?;
    let registered = operator
        .tries("kubectl get extensionconfigs --output name")
        .await?;
    ensure!(registered.lines().count() == 1, "{registered}");
    Ok(())
}
