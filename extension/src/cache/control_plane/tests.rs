use futures::{FutureExt, StreamExt};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::kube_client::{
    bounded::{REQUEST, bounded},
    scripted_server::{Answer, ApiRequest, ScriptedServer, Verb},
};

pub(crate) const GROUP: &str = "controlplane.example.com";

const GOODS: &str = "/apis/controlplane.example.com/v1/goods";
const BADS: &str = "/apis/controlplane.example.com/v1/bads";

/// An API server with two kinds of control planes of one group, and Deployments.
pub(crate) struct Server {
    state: Arc<Mutex<State>>,
    api: ScriptedServer,
}

/// Content of the API server, and failures of requests.
pub(crate) struct State {
    good: Option<Answer>,
    pub(crate) bad: Option<Answer>,
    /// Response to a watch of a kind whose list succeeds.
    watch: Answer,
    /// Response to the second page of a list, if there is one.
    next_page: Option<Answer>,
    /// Whether the group is served at all.
    served: bool,
    /// Whether its CustomResourceDefinitions have a label.
    pub(crate) labelled: bool,
    definitions: Option<Answer>,
    /// Failure of a group discovery.
    groups: Option<Answer>,
}

impl Server {
    pub(crate) fn new(bad: Option<Answer>) -> Self {
        let state = Arc::new(Mutex::new(State {
            good: None,
            bad,
            watch: short_watch(),
            next_page: None,
            served: true,
            labelled: true,
            definitions: None,
            groups: None,
        }));
        let script = Arc::clone(&state);
        Self {
            state,
            api: ScriptedServer::new(move |request| lock(&script).answer(request)),
        }
    }

    pub(crate) fn set(&self, edit: impl FnOnce(&mut State)) {
        edit(&mut lock(&self.state));
    }

    pub(crate) fn client(&self) -> Client {
        bounded(self.api.client(), REQUEST).into_client()
    }

    pub(crate) fn times_asked(&self) -> usize {
        self.api.requests().len()
    }

    /// Returns the number of requests for a path. Streaming lists, which are refused, do not count.
    pub(crate) fn count_of(&self, path: &str) -> usize {
        self.api
            .count(|request| request.path == path && request.verb != Verb::StreamingList)
    }

    pub(crate) fn asked_for(&self, path: &str) -> bool {
        self.count_of(path) > 0
    }
}

impl State {
    fn answer(&self, request: &ApiRequest) -> Answer {
        if request.verb == Verb::StreamingList {
            return Answer::Refusal(422);
        }
        let (path, watch) = (request.path.as_str(), request.verb == Verb::Watch);
        let group = |name: &str| {
            let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
            json!({"name": name, "versions": [version], "preferredVersion": version})
        };
        let kind = |plural: &str, kind: &str| json!({"name": plural, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["get", "list", "watch"]});
        let resources = |name: &str, kinds: &[Value]| json!({"kind": "APIResourceList", "groupVersion": format!("{name}/v1"), "resources": kinds});
        let (failure, body) = match path {
            "/apis" => {
                let mut groups = vec![group("apps")];
                groups.extend(self.served.then(|| group(GROUP)));
                (
                    self.groups.as_ref(),
                    json!({"kind": "APIGroupList", "groups": groups}),
                )
            }
            "/apis/apps/v1" => (None, resources("apps", &[kind("deployments", "Deployment")])),
            "/apis/controlplane.example.com/v1" => (
                None,
                resources(GROUP, &[kind("goods", "Good"), kind("bads", "Bad")]),
            ),
            GOODS if watch && self.good.is_none() => return self.watch.clone(),
            BADS if watch && self.bad.is_none() => return self.watch.clone(),
            GOODS if request.parameter("continue").is_some() => (self.next_page.as_ref(), Value::Null),
            GOODS => (
                self.good.as_ref(),
                json!({"kind": "GoodList", "apiVersion": format!("{GROUP}/v1"), "metadata": {"resourceVersion": "1", "continue": self.next_page.as_ref().map(|_| "next")}, "items": [{
                    "metadata": {"name": "one", "namespace": "team-a"},
                    "spec": {"version": "v1.36.3"},
                    "status": {"version": "v1.35.4"},
                }, {
                    // A definition may allow such objects.
                    "metadata": {"name": "without-spec", "namespace": "team-b"},
                }, {
                    "metadata": {"name": "odd", "namespace": "team-b"},
                    "spec": null,
                    "status": {"version": 1, "versions": null},
                }]}),
            ),
            BADS => (
                self.bad.as_ref(),
                json!({"kind": "BadList", "apiVersion": format!("{GROUP}/v1"), "metadata": {"resourceVersion": "1"}, "items": []}),
            ),
            _ if path.ends_with(GROUP) => {
                let labels = if self.labelled {
                    json!({"cluster.x-k8s.io/v1beta2": "v1"})
                } else {
                    json!({})
                };
                let name = path.rsplit('/').next();
                (
                    self.definitions.as_ref(),
                    json!({"metadata": {"name": name, "labels": labels}}),
                )
            }
            _ => return Answer::Refusal(404),
        };
        failure.cloned().unwrap_or(Answer::Body(body))
    }
}

/// Returns a watch without events that ends after some seconds.
fn short_watch() -> Answer {
    Answer::idle_watch(Duration::from_secs(5))
}

fn cluster() -> ClusterRef {
    ClusterRef::new("team-a", "one")
}

fn reference(group: &str, kind: &str) -> ObjectReference {
    ObjectReference {
        api_group: Some(group.to_owned()),
        kind: kind.to_owned(),
        name: "one".to_owned(),
        ..ObjectReference::default()
    }
}

fn message(found: Result<Option<CachedControlPlane>, Unknown>) -> String {
    match found {
        Err(Unknown::Unreadable(hold)) => hold.to_string(),
        other => panic!("{other:?}"),
    }
}

fn planes(server: &Server) -> ControlPlanes {
    let triggers = Requeues::default();
    ControlPlanes::new(server.client(), triggers, Vec::new(), Rollbacks::default())
}

/// Returns the control planes of `server` after the list of kind `Good`.
async fn listed(server: &Server) -> ControlPlanes {
    let planes = planes(server);
    let good = || planes.get(&cluster(), &reference(GROUP, "Good"));
    let _reading = good();
    sleep(Duration::from_secs(1)).await;
    assert!(matches!(good(), Ok(Some(_))));
    planes
}

/// Waits as long as two attempts at the maximum delay.
async fn try_again() {
    sleep(Duration::from_mins(3)).await;
}

#[rstest]
#[case::silent(Answer::Never, "nothing was listed within 10 s")]
#[case::forbidden(
    Answer::Refusal(403),
    "allows to get, list and watch bads in group controlplane.example.com"
)]
#[case::bug(Answer::Panic, "its watch panicked")]
#[case::broken(
    Answer::Refusal(500),
    "bads in group controlplane.example.com cannot be listed"
)]
#[tokio::test(start_paused = true)]
async fn an_unreadable_kind_affects_only_its_clusters(#[case] bad: Answer, #[case] why: &str) {
    let (server, triggers) = (Server::new(Some(bad)), Requeues::default());
    let mut requeues = Box::pin(triggers.listen());
    let planes = ControlPlanes::new(
        server.client(),
        triggers.clone(),
        Vec::new(),
        Rollbacks::default(),
    );
    assert_eq!(
        planes.get(&cluster(), &reference(GROUP, "Bad")),
        Err(Unknown::Reading)
    );
    assert_eq!(
        planes.get(&cluster(), &reference(GROUP, "Good")),
        Err(Unknown::Reading)
    );
    sleep(Duration::from_secs(1)).await;
    let good = planes.get(&cluster(), &reference(GROUP, "Good"));
    assert_eq!(
        good.map(|facts| facts.and_then(|facts| facts.versions.spec_version)),
        Ok(Some("v1.36.3".to_owned()))
    );
    assert!(
        requeues.next().now_or_never().is_some(),
        "its Cluster is requeued"
    );

    sleep(Duration::from_secs(10)).await;
    let found = message(planes.get(&cluster(), &reference(GROUP, "Bad")));
    assert!(found.starts_with("ControlPlaneKindUnreadable: "), "{found}");
    assert!(found.contains(why), "{found}");
    while requeues.next().now_or_never().is_some() {}

    server.set(|state| state.bad = None);
    try_again().await;
    assert_eq!(planes.get(&cluster(), &reference(GROUP, "Bad")), Ok(None));
    assert!(
        requeues.next().now_or_never().is_some(),
        "it is requeued when its kind can be read"
    );
}

#[rstest]
#[case::of_kubernetes("apps", "Deployment", true, "deployments.apps does not exist or has no label")]
#[case::without_label(
    GROUP,
    "Good",
    false,
    "goods.controlplane.example.com does not exist or has no label"
)]
#[case::unserved("other.example.com", "Good", true, "the API server does not serve it")]
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_none_of_a_control_plane_is_never_listed(
    #[case] group: &str,
    #[case] kind: &str,
    #[case] labelled: bool,
    #[case] why: &str,
) {
    let server = Server::new(None);
    server.set(|state| state.labelled = labelled);
    let planes = planes(&server);
    let _reading = planes.get(&cluster(), &reference(group, kind));
    try_again().await;
    let found = message(planes.get(&cluster(), &reference(group, kind)));
    assert!(found.contains(why), "{found}");
    assert!(!server.asked_for("/apis/apps/v1/deployments"));
    assert!(!server.asked_for(GOODS));
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_may_not_be_read_is_named_with_the_way_out() {
    let server = Server::new(None);
    server.set(|state| state.definitions = Some(Answer::Refusal(403)));
    let planes = planes(&server);
    let _reading = planes.get(&cluster(), &reference(GROUP, "Good"));
    sleep(Duration::from_secs(1)).await;
    let found = message(planes.get(&cluster(), &reference(GROUP, "Good")));
    let names = "Sluice may not get CustomResourceDefinition goods.controlplane.example.com";
    assert!(
        found.contains(names) && found.ends_with("apply the roles of this release"),
        "{found}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_say_how_a_kind_is_served_is_given_up() {
    let server = Server::new(None);
    server.set(|state| state.groups = Some(Answer::Never));
    let planes = planes(&server);
    let good = || planes.get(&cluster(), &reference(GROUP, "Good"));
    assert_eq!(good(), Err(Unknown::Reading));
    // The timeout of the request is three times as long.
    sleep(REQUEST.time / 2).await;
    let found = message(good());
    assert!(
        found.contains("did not complete its API discovery within 10 s"),
        "{found}"
    );

    server.set(|state| state.groups = None);
    try_again().await;
    assert!(matches!(good(), Ok(Some(_))));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_nothing_asks_for_any_more_is_not_watched() {
    let server = Server::new(None);
    let planes = listed(&server).await;
    let asked = server.times_asked();
    try_again().await;
    assert!(server.times_asked() > asked, "it is watched");

    drop(planes);
    let asked = server.times_asked();
    try_again().await;
    assert_eq!(server.times_asked(), asked);
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_disappears_and_comes_back() {
    let server = Server::new(None);
    let planes = listed(&server).await;
    let good = || planes.get(&cluster(), &reference(GROUP, "Good"));

    server.set(|state| (state.good, state.served) = (Some(Answer::Refusal(404)), false));
    try_again().await;
    let found = message(good());
    assert!(found.contains("the API server does not serve it"), "{found}");

    server.set(|state| (state.good, state.served) = (None, true));
    try_again().await;
    assert!(matches!(good(), Ok(Some(_))));
}

#[rstest]
#[case::refusal(Answer::Refusal(403))]
#[case::bug(Answer::Panic)]
#[tokio::test(start_paused = true)]
async fn one_failure_of_a_watch_is_not_for_ever(#[case] failure: Answer) {
    let server = Server::new(None);
    let planes = listed(&server).await;
    let good = || planes.get(&cluster(), &reference(GROUP, "Good"));
    server.set(|state| state.watch = failure);
    sleep(Duration::from_secs(6)).await;
    server.set(|state| state.watch = short_watch());
    assert!(matches!(good(), Err(Unknown::Unreadable(_))));
    try_again().await;
    assert!(matches!(good(), Ok(Some(_))), "{:?}", good());
}

#[rstest]
#[case::refusal(Answer::Refusal(403), 0)]
#[case::error(Answer::Refusal(500), 45)]
#[case::error_after_a_head(Answer::error_event(500), 45)]
#[case::no_answer(Answer::Never, 75)]
#[case::head_behind_the_limit(Answer::Late(2 * REQUEST.time, Box::new(short_watch())), 75)]
#[tokio::test(start_paused = true)]
async fn a_kind_whose_watch_brings_only_errors_is_believed_for_a_while(
    #[case] failure: Answer,
    #[case] seconds: u64,
) {
    let server = Server::new(None);
    let planes = listed(&server).await;
    let good = || planes.get(&cluster(), &reference(GROUP, "Good"));
    server.set(|state| state.watch = failure);
    // The open watch ends within five of them.
    sleep(Duration::from_secs(seconds.saturating_sub(1))).await;
    assert!(matches!(good(), Ok(Some(_))), "{:?}", good());
    sleep(Duration::from_secs(10)).await;
    for _ in 0..600 {
        let found = message(good());
        assert!(found.starts_with("ControlPlaneKindUnreadable: "), "{found}");
        sleep(Duration::from_secs(1)).await;
    }
    server.set(|state| state.watch = short_watch());
    try_again().await;
    assert!(matches!(good(), Ok(Some(_))), "{:?}", good());
}

/// Its first pages contain only known objects.
#[tokio::test(start_paused = true)]
async fn a_kind_whose_lists_are_interrupted_is_believed_for_a_while() {
    let server = Server::new(None);
    let planes = listed(&server).await;
    server.set(|state| {
        state.watch = Answer::error_event(410);
        state.next_page = Some(Answer::Refusal(500));
    });
    sleep(Duration::from_mins(1)).await;
    message(planes.get(&cluster(), &reference(GROUP, "Good")));
}

#[rstest]
#[case::error(Answer::Refusal(500))]
#[case::no_answer(Answer::Never)]
#[tokio::test(start_paused = true)]
async fn errors_with_answers_between_them_do_not_add_up(#[case] failure: Answer) {
    let server = Server::new(None);
    let planes = listed(&server).await;
    for _ in 0..20 {
        for (watch, seconds) in [(failure.clone(), 20), (short_watch(), 60)] {
            server.set(|state| state.watch = watch);
            for _ in 0..seconds {
                let good = planes.get(&cluster(), &reference(GROUP, "Good"));
                assert!(matches!(good, Ok(Some(_))), "{good:?}");
                sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// The head of each watch comes later than the watch lasts.
#[tokio::test(start_paused = true)]
async fn a_late_head_ends_a_failure() {
    let server = Server::new(None);
    let planes = listed(&server).await;
    server.set(|state| state.watch = Answer::Refusal(500));
    // The open watch ends, and the next one fails.
    sleep(Duration::from_secs(6)).await;
    let late = Answer::Late(Duration::from_secs(20), Box::new(short_watch()));
    server.set(|state| state.watch = late);
    for _ in 0..600 {
        let good = planes.get(&cluster(), &reference(GROUP, "Good"));
        assert!(matches!(good, Ok(Some(_))), "{good:?}");
        sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_whose_watch_says_nothing_is_watched_again() {
    let server = Server::new(None);
    let planes = listed(&server).await;
    let version = || {
        let good = planes.get(&cluster(), &reference(GROUP, "Good"));
        good.map(|facts| facts.and_then(|facts| facts.versions.spec_version))
    };
    server.set(|state| state.watch = Answer::idle_watch(Duration::from_secs(75)));
    sleep(Duration::from_secs(10)).await;
    let watches = || server.count_of(GOODS);
    let before = watches();
    for _ in 0..160 {
        assert!(version().is_ok(), "{:?}", version());
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(watches() - before, 2, "one for each connection that was ended");

    server.set(|state| state.good = Some(Answer::Never));
    sleep(Duration::from_secs(200)).await;
    let found = message(version().map(|_| None));
    assert!(found.starts_with("ControlPlaneKindUnreadable: "), "{found}");
}

#[tokio::test(start_paused = true)]
async fn a_group_of_the_operator_needs_no_label() {
    let server = Server::new(None);
    server.set(|state| state.labelled = false);
    let planes = ControlPlanes::new(
        server.client(),
        Requeues::default(),
        vec![GROUP.to_owned()],
        Rollbacks::default(),
    );
    let _reading = planes.get(&cluster(), &reference(GROUP, "Good"));
    sleep(Duration::from_secs(1)).await;
    assert!(matches!(
        planes.get(&cluster(), &reference(GROUP, "Good")),
        Ok(Some(_))
    ));
}
