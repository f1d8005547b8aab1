//! Probe of a held Cluster: a few read-only requests, one after the other, within limits.

use http::Request;
use serde::{Deserialize, de::DeserializeOwned};
use sluice_crds::{
    decode::{self, Limit},
    run::{HeldCause, PackageState, UpgradeRecord},
};

use super::{
    classify::{classify, evidence, of_reason},
    objects::{Budget, Condition, DaemonSet, HeldObjects, Machine, Pod},
    requests::{Step, selector},
    texts::Texts,
};
use crate::{
    explanation::{Explanation, subject_of},
    proof::Summary,
    protocol::{Failure, Server},
    upgrade_plan::workload::page,
};

/// Maximum number of requests of a probe.
const REQUESTS: usize = 20;

/// Maximum size of all responses of a probe together, in bytes.
const RESPONSES: usize = 2 * 1024 * 1024;

/// Memory limit of a decoded PackageInstall or App, in bytes.
const OBJECT: usize = 4 * 1024 * 1024;

/// What a probe reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// What the Cluster waits for, by [`Explanation::subject`].
    pub subject: String,
    /// Package that the Cluster waits for.
    pub package: Option<ProbedPackage>,
    /// Whether the workload API server could not be reached. Then only the failure is of interest.
    pub is_unreachable: bool,
    /// Namespace of the Cluster.
    pub namespace: String,
    /// Name of the Cluster.
    pub cluster: String,
}

/// PackageInstall and App of a probed package, which have the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbedPackage {
    /// API server that stores them.
    pub server: Server,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// One request of a probe.
#[derive(Debug)]
pub struct ProbeRequest {
    /// API server.
    pub server: Server,
    /// Request.
    pub request: Request<Vec<u8>>,
    /// Maximum size of the response, in bytes.
    pub longest: usize,
}

/// What a probe has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    subject: String,
    texts: Texts,
    objects: HeldObjects,
}

impl Probed {
    /// Returns the cause of a wait in a record. What was read of another package counts while that one is not proven either: as
    /// kapp-controller retries, the first package that the Cluster waits for changes all the time.
    pub(crate) fn cause(&self, wait: &Explanation<'_>, record: &UpgradeRecord) -> Option<HeldCause> {
        if wait.subject() == self.subject {
            return Some(classify(wait, &self.texts, &self.objects));
        }
        let mut packages = record.packages.iter();
        let is_awaited = packages
            .any(|package| package.state != PackageState::Ready && subject_of(package) == self.subject);
        is_awaited
            .then(|| of_reason(wait).or_else(|| evidence(&self.texts, &self.objects)))
            .flatten()
    }
}

/// A running probe.
#[derive(Debug)]
pub struct Probing {
    probe: Probe,
    step: Step,
    /// Token of the next page of the step.
    token: Option<String>,
    /// Label of the objects of the package, from the status of its App.
    label: Option<String>,
    requests: usize,
    /// Bytes that responses may still take.
    left: usize,
    /// Whether the workload API server did not respond.
    is_lost: bool,
    texts: Texts,
    objects: HeldObjects,
}

/// PackageInstall or App.
#[derive(Debug, Deserialize)]
struct Reconciled {
    metadata: Option<ReconciledMetadata>,
    status: Option<ReconciledStatus>,
}

#[derive(Debug, Deserialize)]
struct ReconciledMetadata {
    generation: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReconciledStatus {
    observed_generation: Option<i64>,
    conditions: Option<Vec<Condition>>,
    useful_error_message: Option<String>,
    deploy: Option<Deploy>,
}

#[derive(Debug, Deserialize)]
struct Deploy {
    kapp: Option<Kapp>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kapp {
    associated_resources: Option<AssociatedResources>,
}

#[derive(Debug, Deserialize)]
struct AssociatedResources {
    label: Option<String>,
}

impl Reconciled {
    /// Returns the error of the last run, if it failed at the current generation. kapp-controller keeps an error until a run succeeds.
    fn error(&self) -> Option<&str> {
        let status = self.status.as_ref()?;
        let generation = self.metadata.as_ref()?.generation?;
        let fails = |condition: &Condition| {
            [Summary::ReconcileFailed, Summary::DeleteFailed]
                .into_iter()
                .any(|summary| condition.is(summary.as_str(), "True"))
        };
        let has_failed = status.conditions.iter().flatten().any(fails);
        let error = status.useful_error_message.as_deref();
        error.filter(|_| has_failed && status.observed_generation == Some(generation))
    }
}

/// ConfigMap of kapp about an App.
#[derive(Debug, Deserialize)]
struct KappApp {
    data: Option<KappAppData>,
}

#[derive(Debug, Deserialize)]
struct KappAppData {
    /// JSON of [`KappAppSpec`].
    spec: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KappAppSpec {
    label_key: String,
    label_value: String,
}

impl KappApp {
    /// Returns the label of the objects of the App.
    fn label(&self) -> Option<String> {
        let spec = self.data.as_ref()?.spec.as_deref()?;
        let spec = decode::from_str::<KappAppSpec>(spec, Limit::whole(OBJECT));
        let (
            KappAppSpec {
                label_key,
                label_value,
            },
            _,
        ) = spec.ok()?;
        let label = format!("{label_key}={label_value}");
        selector(&label).map(str::to_owned)
    }
}

impl Probing {
    /// Starts a probe.
    #[must_use]
    pub fn new(probe: Probe) -> Self {
        let step = if probe.is_unreachable {
            Step::Contact
        } else {
            Step::Install
        };
        Self {
            probe,
            step,
            token: None,
            label: None,
            requests: 0,
            left: RESPONSES,
            is_lost: false,
            texts: Texts::default(),
            objects: HeldObjects::default(),
        }
    }

    /// Returns the next request; `None` at the end of the probe and at its limits.
    pub fn next_request(&mut self) -> Option<ProbeRequest> {
        while self.step != Step::Ended && self.requests < REQUESTS && self.left > 0 {
            let server = self.server();
            let request = if self.is_needless() {
                None
            } else {
                let (label, token) = (self.label.as_deref(), self.token.as_deref());
                self.step.request(&self.probe, label, token)
            };
            match request {
                Some(Ok(request)) => {
                    self.requests += 1;
                    return Some(ProbeRequest {
                        server,
                        request,
                        longest: self.left,
                    });
                }
                Some(Err(failure)) => {
                    self.objects.fail(&failure.text);
                    self.advance();
                }
                None => self.advance(),
            }
        }
        None
    }

    /// Takes the response to the last request.
    pub fn answered(&mut self, answer: Result<&str, &Failure>) {
        let read = match answer {
            Ok(text) => {
                self.left = self.left.saturating_sub(text.len());
                self.read(text)
            }
            Err(failure) => {
                self.failed(failure);
                Ok(None)
            }
        };
        match read {
            Ok(Some(token)) if self.may_continue() => self.token = Some(token),
            Ok(_) => self.advance(),
            Err(failure) => {
                self.objects.fail(&failure.text);
                self.advance();
            }
        }
    }

    /// Notes that the probe took too long.
    pub fn timed_out(&mut self) {
        let failure = if self.probe.is_unreachable {
            "connect: no response in time"
        } else {
            "the probe took too long"
        };
        self.objects.fail(failure);
    }

    /// Ends the probe.
    #[must_use]
    pub fn end(self) -> Probed {
        Probed {
            subject: self.probe.subject,
            texts: self.texts,
            objects: self.objects,
        }
    }

    /// Returns the API server of the current step.
    fn server(&self) -> Server {
        self.step.server(self.probe.package.as_ref())
    }

    /// Whether the current step cannot change the cause, or cannot succeed.
    fn is_needless(&self) -> bool {
        let is_named = self.texts.specific().is_some();
        match self.step {
            Step::Contact | Step::Install | Step::App => self.is_lost && self.server() == Server::Workload,
            Step::Machines => {
                is_named || !self.texts.only_time_out() || self.objects.of_package_alone().is_some()
            }
            Step::Budgets => is_named || self.is_lost || !self.objects.needs_budgets(),
            _ => is_named || self.is_lost,
        }
    }

    /// Whether the current step may read a further page. Machines and PodDisruptionBudgets leave half of the limits to running Pods.
    fn may_continue(&self) -> bool {
        let leaves_half = self.requests < REQUESTS / 2 && self.left > RESPONSES / 2;
        leaves_half || !matches!(self.step, Step::Machines | Step::Budgets)
    }

    fn advance(&mut self) {
        self.step = self.step.next();
        self.token = None;
    }

    /// Adds a response. Returns the token of the next page.
    fn read(&mut self, text: &str) -> Result<Option<String>, Failure> {
        match self.step {
            Step::Contact | Step::Ended => Ok(None),
            Step::Install => {
                self.add_error("PackageInstall", text)?;
                Ok(None)
            }
            Step::App => {
                let status = self.add_error("App", text)?;
                let deployed = status.and_then(|status| status.deploy?.kapp?.associated_resources?.label);
                self.label = deployed.as_deref().and_then(selector).map(str::to_owned);
                Ok(None)
            }
            Step::KappApp => {
                let app = whole::<KappApp>(self.server(), text)?;
                self.label = app.label();
                Ok(None)
            }
            Step::DaemonSets => {
                let (daemon_sets, token) = page::<DaemonSet>(text)?;
                for daemon_set in &daemon_sets {
                    self.objects.add_daemon_set(daemon_set);
                }
                Ok(token)
            }
            Step::PendingPods | Step::RunningPods => {
                let (pods, token) = page::<Pod>(text)?;
                for pod in &pods {
                    self.objects.add_pod(pod);
                }
                Ok(token)
            }
            Step::Machines => {
                let (machines, token) = page::<Machine>(text)?;
                for machine in &machines {
                    self.objects.add_machine(machine);
                }
                Ok(token)
            }
            Step::Budgets => {
                let (budgets, token) = page::<Budget>(text)?;
                for budget in &budgets {
                    self.objects.add_budget(budget);
                }
                Ok(token)
            }
        }
    }

    /// Adds the error of the PackageInstall or App. Returns its status.
    fn add_error(&mut self, kind: &str, text: &str) -> Result<Option<ReconciledStatus>, Failure> {
        let reconciled = whole::<Reconciled>(self.server(), text)?;
        let package = self.probe.package.as_ref();
        if let Some((package, error)) = package.zip(reconciled.error()) {
            let object = format!("{kind} {}/{}", package.namespace, package.name);
            self.texts.add(&object, error);
        }
        Ok(reconciled.status)
    }

    /// Notes a failed request. PackageInstall, App and what kapp keeps of it may not exist yet.
    fn failed(&mut self, failure: &Failure) {
        let may_be_absent = matches!(self.step, Step::Install | Step::App | Step::KappApp);
        if may_be_absent && failure.code == Some(404) {
            return;
        }
        self.objects.fail(&contact(failure));
        self.is_lost |= self.server() == Server::Workload && failure.code.is_none() && !failure.too_long;
    }
}

/// Decodes the fields that are needed of an object.
fn whole<T: DeserializeOwned>(server: Server, text: &str) -> Result<T, Failure> {
    let decoded = decode::from_str::<T>(text, Limit::whole(OBJECT));
    let (object, _) = decoded.map_err(|fault| Failure::unreadable(server, &fault))?;
    Ok(object)
}

/// Describes a failed request: DNS, connect, TLS or status, with the error.
fn contact(failure: &Failure) -> String {
    let is_dns = ["dns error", "failed to lookup address"]
        .iter()
        .any(|words| failure.text.contains(words));
    let how = match (failure.code, failure.cause.as_deref()) {
        (Some(code), _) => return format!("status {code}: {}", failure.message),
        (None, _) if failure.too_long => return failure.text.clone(),
        (None, Some(cause)) if !cause.contains("proxy") => "TLS",
        (None, _) if is_dns => "DNS",
        (None, _) => "connect",
    };
    format!("{how}: {}", failure.text)
}
