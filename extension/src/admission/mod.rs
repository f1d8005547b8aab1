//! Admission webhooks, which refuse invalid objects before they are stored, see [`sluice_core::admission`].
//!
//! They have a listener and a thread of their own. A gate would hold for the same faults, so an object whose lookups time out is admitted
//! with a warning, and so is an upgrade that cannot be checked. An UpgradeGate is refused instead, because nothing else checks the rights
//! of its author, and an UpgradeOverride, because it has no effect without the fields that its webhook fills in.

mod answer;
mod clusters;
mod gates;
mod kept;
mod lookups;
mod metrics;
mod overrides;
mod patch;
mod upgrades;
mod wire;

use std::{
    net::IpAddr,
    panic::AssertUnwindSafe,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    response::Response,
    routing::post,
};
use futures::FutureExt as _;
use http::StatusCode;
use sluice_core::{
    admission::{
        Kind, Lookups, Review, Verdict,
        cluster_upgrade::{is_bump, is_checked, unchecked, with_gate},
        complete, judge,
        upgrade_gate::GateVerdict,
        upgrade_override::OverrideVerdict,
    },
    cluster::release_of,
    installation::gate_in_force::{NotInForce, NotInForceReason},
    limits::Shares,
    resolver::{Asked, Resolution, Unknown},
};
use sluice_crds::foreign::Cluster;
use sluice_hooks::{Budget, Peer, Repeats, Unread, in_turn};
use tracing::{debug, error, info};

use self::{
    answer::{ReviewedObject, plain, reviewed, undecided},
    patch::ReviewedSpec,
    wire::Malformed,
};
pub use self::{
    gates::Rights,
    lookups::Caches,
    metrics::{AdmissionMetrics, Outcome},
};
use crate::{
    flags::{AdmissionArgs, GateNotInForce, UpgradeChecks},
    server::serve::{PIECE, read_within},
};

/// Maximum size of a review body: an object of etcd's 1.5 MiB, new and old, and the JSON around them.
const MAX_BODY: usize = 8 * 1024 * 1024;

/// Total memory of reviews up to 128 KiB, in KiB, until their response.
const SMALL_KIB: usize = 8 * 1024;

/// Total memory of larger reviews: three of the largest. A peer gets at most as much as remains for others.
const LARGE_KIB: usize = 24 * 1024;

/// Concurrent reviews with lookups. Further ones are decided without lookups, or refused if they are of UpgradeGates. A peer gets at most as
/// many as remain for others.
const LOOKUPS: usize = 64;

/// Timeout of all lookups of a review.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout of reading a response.
const READ: Duration = Duration::from_secs(10);

/// Timeout of the reads of ExtensionConfigs for an upgrade.
const GATE_TIMEOUT: Duration = Duration::from_millis(500);

/// Checks of upgrades of Clusters.
#[derive(Debug, Clone, Copy)]
pub struct Checks {
    /// Checks by the plan of the upgrade.
    pub upgrade: UpgradeChecks,
    /// Check that Cluster API calls the hooks.
    pub gate: GateNotInForce,
}

impl Checks {
    /// Returns the checks that these flags select.
    #[must_use]
    pub const fn of(args: &AdmissionArgs) -> Self {
        Self {
            upgrade: args.upgrade_checks,
            gate: args.gate_not_in_force,
        }
    }
}

/// Handler of reviews. Clones share the same state.
#[derive(Debug, Clone)]
pub struct Admission(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    system_namespace: String,
    checks: Checks,
    /// Caches; unset until all Clusters are cached.
    caches: OnceLock<Caches>,
    /// Lookups for UpgradeGates; unset until there is a client.
    rights: OnceLock<Rights>,
    bodies: Budget,
    lookups: Shares<IpAddr>,
    refused: Repeats<&'static str>,
    metrics: AdmissionMetrics,
}

impl Admission {
    /// Creates webhooks that respond to reviews with lookups with 503 until [`Admission::set_caches`], for UpgradeGates until
    /// [`Admission::set_rights`].
    #[must_use]
    pub fn new(system_namespace: String, checks: Checks, metrics: AdmissionMetrics) -> Self {
        Self(Arc::new(Inner {
            system_namespace,
            checks,
            caches: OnceLock::new(),
            rights: OnceLock::new(),
            bodies: Budget::of(SMALL_KIB, LARGE_KIB, MAX_BODY),
            lookups: Shares::of(LOOKUPS),
            refused: Repeats::default(),
            metrics,
        }))
    }

    /// Sets the caches in `caches`, from which reviews are decided from now on.
    pub fn set_caches(&self, caches: Caches) {
        self.0.caches.get_or_init(|| caches);
    }

    /// Sets the lookups in `rights`, from which reviews of UpgradeGates are decided from now on.
    pub fn set_rights(&self, rights: Rights) {
        self.0.rights.get_or_init(|| rights);
    }

    /// Returns the routes for packages, which are those of the addons-manager and that of UpgradeOverrides, and those for UpgradeGates.
    pub fn router(&self, packages: bool, gates: bool) -> Router {
        let is_served = |webhook: &Webhook| match webhook {
            Webhook::Default
            | Webhook::Resolve
            | Webhook::Upgrade
            | Webhook::Override
            | Webhook::Validate(_) => packages,
            Webhook::Gate => gates,
        };
        let mut router = Router::new();
        for webhook in Webhook::ALL.into_iter().filter(is_served) {
            let handler = move |State(this): State<Self>, request: Request| async move {
                this.answer(webhook, request).await
            };
            router = router.route(webhook.path(), post(handler));
        }
        router.with_state(self.clone())
    }

    async fn answer(&self, webhook: Webhook, request: Request) -> Response {
        let name = webhook.name();
        let in_flight = self.0.metrics.begin(name);
        let peer = request.extensions().get::<Peer>().cloned().unwrap_or_default();
        let address = peer.address();
        let answered = AssertUnwindSafe(self.review(webhook, request, peer))
            .catch_unwind()
            .await;
        let (outcome, response) = answered.unwrap_or_else(|_panic| {
            error!(webhook = name, "Review panicked; see the panic above");
            let text = "the review panicked; see the log of Sluice";
            (Outcome::Failed, plain(StatusCode::INTERNAL_SERVER_ERROR, text))
        });
        if outcome.is_of_the_caller()
            && let Some(left_out) = self.0.refused.begins(address, outcome.as_str(), Instant::now())
        {
            info!(peer = %address, webhook = name, outcome = outcome.as_str(), left_out, "Refused review");
        }
        in_flight.answered(outcome, response.status());
        response
    }

    async fn review(&self, webhook: Webhook, request: Request, peer: Peer) -> (Outcome, Response) {
        let (head, body) = request.into_parts();
        let version = head.version;
        drop(head);
        if hyper::body::Body::size_hint(&body).lower() > MAX_BODY as u64 {
            return unread(&Unread::TooLarge);
        }
        let parse = |bytes: &[u8]| self.parsed(webhook, bytes);
        let (parsed, mut share) = match in_turn(body, version, &self.0.bodies, &peer, parse).await {
            Ok(read) => read,
            Err(why) => return unread(&why),
        };
        // The decoded review may take much more memory than its body.
        let memory = match &parsed {
            Ok(Parsed::Waits(review) | Parsed::Unchecked(review)) => Some(review.memory),
            Ok(Parsed::Gate(review)) => Some(review.memory),
            Ok(Parsed::Answered(_) | Parsed::Judged { .. }) | Err(_) => None,
        };
        if let Some(memory) = memory
            && let Err(why) = share.also_cover(memory, &self.0.bodies, &peer)
        {
            return unread(&why);
        }
        let (outcome, answer) = match parsed {
            Ok(Parsed::Answered(answered)) => answered,
            Ok(Parsed::Waits(review)) => self.resolved_later(*review, peer.address()).await,
            Ok(Parsed::Unchecked(review)) => self.checked_later(*review, peer.address()).await,
            Ok(Parsed::Gate(review)) => self.gate(*review, peer.address()).await,
            Ok(Parsed::Judged { kind, uid, review }) => {
                self.judged(kind, &uid, *review, peer.address()).await
            }
            Err(Malformed(why)) => {
                let kind = webhook.kind();
                // The error may quote a text of the body.
                let text = format!("the body is no AdmissionReview of a {kind}: {why:.1024}");
                (Outcome::Malformed, plain(StatusCode::BAD_REQUEST, &text))
            }
        };
        // A patch quotes text of a user.
        let is_short = hyper::body::Body::size_hint(answer.body())
            .upper()
            .is_some_and(|bytes| bytes <= PIECE as u64);
        if is_short {
            return (outcome, answer);
        }
        (outcome, read_within(answer, READ, share).await)
    }

    /// Parses a body, and returns the response where the caches suffice.
    fn parsed(&self, webhook: Webhook, bytes: &[u8]) -> Result<Parsed, Malformed> {
        match webhook {
            Webhook::Default => self.completed(bytes).map(Parsed::Answered),
            Webhook::Resolve => self.resolved(bytes),
            Webhook::Upgrade => self.checked(bytes),
            Webhook::Override => self.overridden(bytes).map(Parsed::Answered),
            Webhook::Gate => Ok(Parsed::Gate(Box::new(gates::parse(bytes)?))),
            Webhook::Validate(kind) => {
                let wire::Asked { uid, review, .. } = wire::parse(kind, bytes)?;
                let review = Box::new(review);
                Ok(Parsed::Judged { kind, uid, review })
            }
        }
    }

    async fn judged(
        &self,
        kind: Kind,
        uid: &str,
        review: Option<Review>,
        peer: IpAddr,
    ) -> (Outcome, Response) {
        // No rule covers another operation, a subresource or an object under deletion.
        let Some(review) = review else {
            return (
                Outcome::Admitted,
                reviewed(uid, ReviewedObject::kind(kind, ""), &Verdict::default(), None),
            );
        };
        let system = &self.0.system_namespace;
        let verdict = match self.0.caches.get() {
            Some(caches) => {
                let slots = (&self.0.lookups, peer);
                caches.judge(&review, system, slots, LOOKUP_TIMEOUT).await
            }
            None => match judge(&review, system, &Lookups::new()) {
                Ok(verdict) => verdict,
                Err(_) => return starting(),
            },
        };
        let outcome = Outcome::of(&verdict);
        said(Webhook::Validate(kind), &review.namespace, &review.name, outcome);
        let of = ReviewedObject::kind(kind, &review.name);
        (outcome, reviewed(uid, of, &verdict, None))
    }

    /// Responds to a review of an UpgradeGate. It is never admitted while a right of its author is not known.
    async fn gate(&self, review: gates::Review, peer: IpAddr) -> (Outcome, Response) {
        let gates::Review {
            uid,
            namespace,
            name,
            begun,
            ..
        } = review;
        let verdict = match begun {
            Err(verdict) => GateVerdict::Known(verdict),
            Ok(review) => {
                let Some(rights) = self.0.rights.get() else {
                    let text = "Sluice has just started; try again";
                    return (Outcome::Starting, plain(StatusCode::SERVICE_UNAVAILABLE, text));
                };
                // Waiting reviews would pile up under load.
                let Some(_slot) = self.0.lookups.take(&peer) else {
                    return unread(&Unread::Busy);
                };
                rights.judge(&review, LOOKUP_TIMEOUT).await
            }
        };
        let of = ReviewedObject::gate(&name);
        let (outcome, answer) = match &verdict {
            GateVerdict::Known(verdict) => (Outcome::of(verdict), reviewed(&uid, of, verdict, None)),
            GateVerdict::Unknown(why) => (Outcome::Undecided, undecided(&uid, of, why)),
        };
        said(Webhook::Gate, &namespace, &name, outcome);
        (outcome, answer)
    }

    /// Responds from the caches alone.
    fn completed(&self, bytes: &[u8]) -> Result<(Outcome, Response), Malformed> {
        let kind = Kind::Bootstrap;
        let wire::Asked {
            uid,
            review,
            spec,
            old_spec,
            annotated,
        } = wire::parse(kind, bytes)?;
        let Some(review) = review else {
            return Ok((
                Outcome::Admitted,
                reviewed(&uid, ReviewedObject::kind(kind, ""), &Verdict::default(), None),
            ));
        };
        let completion = match self.0.caches.get() {
            Some(caches) => caches.complete(&review, &self.0.system_namespace),
            None => match complete(&review, &Lookups::new()) {
                Ok(completion) => completion,
                Err(_) => return Ok(starting()),
            },
        };
        let own = ReviewedSpec {
            text: spec,
            spec: &review.new.spec,
        };
        let stored = review.old.as_ref().map(|old| ReviewedSpec {
            text: old_spec,
            spec: &old.spec,
        });
        let patch = patch::patch(own, stored, annotated, &completion)
            .map_err(|error| Malformed(error.to_string()))?;
        let verdict = Verdict {
            faults: completion.faults,
            warnings: completion.warnings,
        };
        let outcome = Outcome::of(&verdict);
        said(Webhook::Default, &review.namespace, &review.name, outcome);
        let of = ReviewedObject::kind(kind, &review.name);
        Ok((outcome, reviewed(&uid, of, &verdict, patch.as_deref())))
    }

    /// Responds to a review of an UpgradeOverride from the caches alone.
    fn overridden(&self, bytes: &[u8]) -> Result<(Outcome, Response), Malformed> {
        let overrides::Review {
            uid,
            namespace,
            name,
            new,
        } = overrides::parse(bytes)?;
        let judged = match new {
            None => OverrideVerdict::default(),
            Some(Err(verdict)) => OverrideVerdict {
                verdict,
                ..OverrideVerdict::default()
            },
            Some(Ok(new)) => {
                let Some(caches) = self.0.caches.get() else {
                    return Ok(starting());
                };
                caches.judge_override(&namespace, &new, &self.0.system_namespace)
            }
        };
        let outcome = Outcome::of(&judged.verdict);
        said(Webhook::Override, &namespace, &name, outcome);
        let of = ReviewedObject::upgrade_override(&name);
        let patch = overrides::patch(&judged);
        Ok((outcome, reviewed(&uid, of, &judged.verdict, patch.as_deref())))
    }

    /// Responds from the caches alone, unless control planes have to be read first.
    fn resolved(&self, bytes: &[u8]) -> Result<Parsed, Malformed> {
        let review = clusters::parse(bytes)?;
        Ok(match self.resolution(&review, false) {
            Ok(answer) => Parsed::Answered(answer),
            Err(_) => Parsed::Waits(Box::new(review)),
        })
    }

    /// Responds once control planes are read, which takes a fraction of a second for the first Cluster of a kind.
    async fn resolved_later(&self, review: clusters::Review, peer: IpAddr) -> (Outcome, Response) {
        self.read_control_planes(&review, peer).await;
        self.resolution(&review, true)
            .unwrap_or_else(|unknown| unavailable(&unknown))
    }

    /// Waits until control planes of the kind of a Cluster are read, for a limited time.
    async fn read_control_planes(&self, review: &clusters::Review, peer: IpAddr) {
        // Waiting reviews would pile up under load.
        if let (Some(_slot), Some(caches), Some(asked)) =
            (self.0.lookups.take(&peer), self.0.caches.get(), &review.asked)
        {
            let read = tokio::time::timeout(LOOKUP_TIMEOUT, caches.read_control_planes(asked));
            let _either_way = read.await.is_ok();
        }
    }

    /// Responds from the caches alone, unless the control plane or ExtensionConfigs have to be read first.
    fn checked(&self, bytes: &[u8]) -> Result<Parsed, Malformed> {
        let review = clusters::parse(bytes)?;
        if self.bump(&review).is_some() {
            return Ok(Parsed::Unchecked(Box::new(review)));
        }
        Ok(match self.upgrade(&review) {
            Some(verdict) => Parsed::Answered(of_upgrade(&review, &verdict)),
            None => Parsed::Unchecked(Box::new(review)),
        })
    }

    /// Responds once control planes and ExtensionConfigs are read. A gate holds for the findings of a plan, so an upgrade that cannot be
    /// checked is admitted.
    async fn checked_later(&self, review: clusters::Review, peer: IpAddr) -> (Outcome, Response) {
        let mut verdict = self.upgrade(&review);
        if verdict.is_none() {
            self.read_control_planes(&review, peer).await;
            verdict = self.upgrade(&review);
        }
        let mut verdict = verdict.unwrap_or_else(|| unchecked("its control plane is not listed yet"));
        if let Some((old, new)) = self.bump(&review)
            && let Some(not) = self.not_in_force(old, new).await
        {
            verdict = with_gate(verdict, new, &not, self.0.checks.gate == GateNotInForce::Deny);
        }
        of_upgrade(&review, &verdict)
    }

    /// Returns the Cluster before and after an update that raises its version, if that is checked.
    fn bump<'a>(&self, review: &'a clusters::Review) -> Option<(&'a Cluster, &'a Cluster)> {
        let Asked { old, new } = review.asked.as_ref()?;
        let old = old
            .as_ref()
            .filter(|_| self.0.checks.gate != GateNotInForce::Off)?;
        is_bump(old, new).then_some((old, new))
    }

    /// Returns the reason why an upgrade would not wait for Sluice, if it is to wait.
    async fn not_in_force(&self, old: &Cluster, new: &Cluster) -> Option<NotInForce> {
        match self.0.caches.get() {
            Some(caches) if caches.is_gated(old, new) => {
                let namespace = new.metadata.namespace.as_deref().unwrap_or_default();
                caches.not_in_force(namespace, GATE_TIMEOUT).await
            }
            Some(_) => None,
            None => {
                let is_labelled = !release_of(&new.metadata).is_empty();
                is_labelled.then(|| NotInForce::new(NotInForceReason::Unreadable, "Sluice has just started"))
            }
        }
    }

    /// Returns the verdict about the upgrade of a Cluster; `None` until its control plane is listed.
    fn upgrade(&self, review: &clusters::Review) -> Option<Verdict> {
        let denies = match self.0.checks.upgrade {
            UpgradeChecks::Deny => true,
            UpgradeChecks::Warn => false,
            UpgradeChecks::Off => return Some(Verdict::default()),
        };
        match &review.asked {
            Some(Asked { old: Some(old), new }) if is_checked(old, new) => match self.0.caches.get() {
                Some(caches) => caches.check_upgrade((old, new), denies),
                None => Some(unchecked("Sluice has just started")),
            },
            _ => Some(Verdict::default()),
        }
    }

    /// Builds the response to a review of a Cluster.
    ///
    /// # Errors
    /// The versions of machines are not known yet.
    fn resolution(&self, review: &clusters::Review, is_last: bool) -> Result<(Outcome, Response), Unknown> {
        let clusters::Review {
            uid,
            namespace,
            name,
            asked,
            ..
        } = review;
        let of = ReviewedObject::cluster(name);
        let Some(asked) = asked else {
            return Ok((Outcome::Admitted, reviewed(uid, of, &Verdict::default(), None)));
        };
        let Some(caches) = self.0.caches.get() else {
            return Ok(starting());
        };
        let Resolution {
            faults,
            warnings,
            patch,
        } = match caches.resolve(asked, is_last) {
            Ok(resolution) => resolution,
            Err(unknown @ (Unknown::Running | Unknown::Unused)) => return Err(unknown),
            Err(unknown) => return Ok(unavailable(&unknown)),
        };
        let verdict = Verdict { faults, warnings };
        let outcome = Outcome::of(&verdict);
        said(Webhook::Resolve, namespace, name, outcome);
        let patch = (!patch.is_empty()).then(|| serde_json::Value::from(patch).to_string());
        Ok((outcome, reviewed(uid, of, &verdict, patch.as_deref())))
    }
}

/// Parsed review.
enum Parsed {
    /// The caches sufficed for the response.
    Answered((Outcome, Response)),
    /// The result depends on the versions of machines of a Cluster.
    Waits(Box<clusters::Review>),
    /// The plan of an upgrade depends on the control plane, or its gate on ExtensionConfigs.
    Unchecked(Box<clusters::Review>),
    /// The result depends on the rights of the author of a gate.
    Gate(Box<gates::Review>),
    /// The result depends on lookups.
    Judged {
        kind: Kind,
        uid: String,
        review: Box<Option<Review>>,
    },
}

/// Builds the response to a review of the upgrade of a Cluster.
fn of_upgrade(review: &clusters::Review, verdict: &Verdict) -> (Outcome, Response) {
    let outcome = Outcome::of(verdict);
    said(Webhook::Upgrade, &review.namespace, &review.name, outcome);
    let of = ReviewedObject::cluster(&review.name);
    (outcome, reviewed(&review.uid, of, verdict, None))
}

fn unavailable(unknown: &Unknown) -> (Outcome, Response) {
    let text = unknown.to_string();
    (Outcome::Starting, plain(StatusCode::SERVICE_UNAVAILABLE, &text))
}

fn said(webhook: Webhook, namespace: &str, name: &str, outcome: Outcome) {
    debug!(
        webhook = webhook.name(),
        namespace,
        name,
        outcome = outcome.as_str(),
        "Answered review"
    );
}

fn starting() -> (Outcome, Response) {
    let text = "Sluice has just started and does not know all Clusters yet; try again";
    (Outcome::Starting, plain(StatusCode::SERVICE_UNAVAILABLE, text))
}

fn unread(why: &Unread) -> (Outcome, Response) {
    match why {
        Unread::TooLarge => (
            Outcome::TooLarge,
            plain(StatusCode::PAYLOAD_TOO_LARGE, "the body has more than 8 MiB"),
        ),
        Unread::Late => (
            Outcome::Late,
            plain(StatusCode::REQUEST_TIMEOUT, "the body did not arrive within 2 s"),
        ),
        Unread::Busy => (
            Outcome::Busy,
            plain(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many reviews at once; try again",
            ),
        ),
        Unread::Broken(_) => (
            Outcome::Malformed,
            plain(StatusCode::BAD_REQUEST, "the body did not arrive whole"),
        ),
    }
}

/// Webhook of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Webhook {
    /// Completion of a ClusterBootstrap.
    Default,
    /// Resolution of the release of a Cluster.
    Resolve,
    /// Validation of the upgrade of a Cluster.
    Upgrade,
    /// Validation and completion of an UpgradeOverride.
    Override,
    /// Validation of an object.
    Validate(Kind),
    /// Validation of an UpgradeGate, and of the rights of its author.
    Gate,
}

impl Webhook {
    const ALL: [Self; 7] = [
        Self::Default,
        Self::Resolve,
        Self::Upgrade,
        Self::Override,
        Self::Validate(Kind::Bootstrap),
        Self::Validate(Kind::Template),
        Self::Gate,
    ];

    /// Returns the kind of the objects.
    const fn kind(self) -> &'static str {
        match self {
            Self::Default => Kind::Bootstrap.as_str(),
            Self::Resolve | Self::Upgrade => "Cluster",
            Self::Validate(kind) => kind.as_str(),
            Self::Gate => "UpgradeGate",
            Self::Override => "UpgradeOverride",
        }
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Default => "/mutate-run-tanzu-vmware-com-v1alpha3-clusterbootstrap",
            Self::Resolve => "/mutate-cluster",
            Self::Upgrade => "/validate-cluster",
            Self::Validate(Kind::Bootstrap) => "/validate-run-tanzu-vmware-com-v1alpha3-clusterbootstrap",
            Self::Validate(Kind::Template) => {
                "/validate-run-tanzu-vmware-com-v1alpha3-clusterbootstraptemplate"
            }
            Self::Gate => "/validate-lifecycle-sluice-dev-v1alpha1-upgradegate",
            Self::Override => "/mutate-lifecycle-sluice-dev-v1alpha1-upgradeoverride",
        }
    }

    /// Returns the name in metrics and logs.
    const fn name(self) -> &'static str {
        match self {
            Self::Default => "clusterbootstrap-default",
            Self::Resolve => "cluster",
            Self::Upgrade => "cluster-upgrade",
            Self::Validate(Kind::Bootstrap) => "clusterbootstrap",
            Self::Validate(Kind::Template) => "clusterbootstraptemplate",
            Self::Gate => "upgradegate",
            Self::Override => "upgradeoverride",
        }
    }
}

#[cfg(test)]
mod tests;
