use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::pending, stream};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::service_fn;

use super::*;
use crate::kube_client::bounded::{REQUEST, bounded};

pub(crate) const GROUP: &str = "controlplane.example.com";

/// Behaviour of the API server for the list of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Answers,
    Refuses(u16),
    NeverAnswers,
    /// Without events, after some seconds: so ends a watch.
    EndsLater,
    /// With an error, as an event.
    ErrorEvent(u16),
    /// With a response head and no body, until the client ends the silent connection.
    Mute,
    /// With a panic of this process.
    Panics,
}

/// An API server with two kinds of control planes of one group, and Deployments.
#[derive(Clone)]
pub(crate) struct Server(Arc<Mutex<State>>);

pub(crate) struct State {
    good: Way,
    pub(crate) bad: Way,
    /// Behaviour for a watch of a kind whose list succeeds.
    watch: Way,
    /// Behaviour for the second page of a list, if there is one.
    next_page: Way,
    /// Desired version of the control plane.
    version: &'static str,
    /// Whether the group is served at all.
    served: bool,
    /// Whether its CustomResourceDefinitions have a label.
    pub(crate) labelled: bool,
    /// Behaviour for a CustomResourceDefinition.
    definitions: Way,
    /// Behaviour for a group discovery.
    groups: Way,
    asked: Vec<String>,
}

impl Server {
    pub(crate) fn new(bad: Way) -> Self {
        Self(Arc::new(Mutex::new(State {
            good: Way::Answers,
            bad,
            watch: Way::EndsLater,
            next_page: Way::Answers,
            version: "v1.36.3",
            served: true,
            labelled: true,
            definitions: Way::Answers,
            groups: Way::Answers,
            asked: Vec::new(),
        })))
    }

    pub(crate) fn set(&self, edit: impl FnOnce(&mut State)) {
        edit(&mut self.0.lock().unwrap());
    }

    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (way, answer) = server.answer(request.uri().path(), request.uri().query());
                match way {
                    Way::NeverAnswers => pending().await,
                    Way::Panics => panic!("a bug"),
                    Way::EndsLater => {
                        sleep(Duration::from_secs(5)).await;
                        return Ok(Response::new(Full::default().boxed_unsync()));
                    }
                    Way::Mute => {
                        let silence = stream::unfold((), |()| async {
                            sleep(Duration::from_secs(75)).await;
                            None::<(Result<Frame<Bytes>, Infallible>, ())>
                        });
                        return Ok(Response::new(StreamBody::new(silence).boxed_unsync()));
                    }
                    Way::Answers | Way::Refuses(_) | Way::ErrorEvent(_) => {}
                }
                let answer = if let Way::ErrorEvent(code) = way {
                    json!({"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": code, "reason": "", "message": ""}})
                } else {
                    answer
                };
                let code = if let Way::Refuses(code) = way { code } else { 200 };
                let answer = if code == 200 {
                    answer
                } else {
                    let reason = if code == 404 { "NotFound" } else { "" };
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": "", "code": code})
                };
                let body: Full<Bytes> = Full::from(serde_json::to_vec(&answer).unwrap());
                Ok::<_, Infallible>(
                    Response::builder()
                        .status(code)
                        .body(body.boxed_unsync())
                        .unwrap(),
                )
            }
        });
        bounded(Client::new(service, "default"), REQUEST)
    }

    fn answer(&self, path: &str, query: Option<&str>) -> (Way, Value) {
        if query.is_some_and(|query| query.contains("sendInitialEvents")) {
            return (Way::Refuses(422), Value::Null);
        }
        let mut state = self.0.lock().unwrap();
        state.asked.push(path.to_owned());
        let group = |name: &str| {
            let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
            json!({"name": name, "versions": [version], "preferredVersion": version})
        };
        let kind = |plural: &str, kind: &str| json!({"name": plural, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["get", "list", "watch"]});
        let resources = |name: &str, kinds: &[Value]| json!({"kind": "APIResourceList", "groupVersion": format!("{name}/v1"), "resources": kinds});
        let watch = query.is_some_and(|query| query.contains("watch=true"));
        let continues = query.is_some_and(|query| query.contains("continue="));
        let next = if state.next_page == Way::Answers {
            ""
        } else {
            "next"
        };
        match path {
            "/apis" => {
                let mut groups = vec![group("apps")];
                groups.extend(state.served.then(|| group(GROUP)));
                (state.groups, json!({"kind": "APIGroupList", "groups": groups}))
            }
            "/apis/apps/v1" => (
                Way::Answers,
                resources("apps", &[kind("deployments", "Deployment")]),
            ),
            "/apis/controlplane.example.com/v1" => (
                Way::Answers,
                resources(GROUP, &[kind("goods", "Good"), kind("bads", "Bad")]),
            ),
            "/apis/controlplane.example.com/v1/goods" if watch && state.good == Way::Answers => {
                (state.watch, Value::Null)
            }
            "/apis/controlplane.example.com/v1/goods" if continues => (state.next_page, Value::Null),
            "/apis/controlplane.example.com/v1/bads" if watch && state.bad == Way::Answers => {
                (state.watch, Value::Null)
            }
            "/apis/controlplane.example.com/v1/goods" => (
                state.good,
                json!({"kind": "GoodList", "apiVersion": format!("{GROUP}/v1"), "metadata": {"resourceVersion": "1", "continue": next}, "items": [{
                    "metadata": {"name": "one", "namespace": "team-a"},
                    "spec": {"version": state.version},
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
            "/apis/controlplane.example.com/v1/bads" => (
                state.bad,
                json!({"kind": "BadList", "apiVersion": format!("{GROUP}/v1"), "metadata": {"resourceVersion": "1"}, "items": []}),
            ),
            _ if path.ends_with(GROUP) => {
                let labels = if state.labelled {
                    json!({"cluster.x-k8s.io/v1beta2": "v1"})
                } else {
                    json!({})
                };
                let name = path.rsplit('/').next();
                (
                    state.definitions,
                    json!({"metadata": {"name": name, "labels": labels}}),
                )
            }
            _ => (Way::Refuses(404), Value::Null),
        }
    }

    pub(crate) fn times_asked(&self) -> usize {
        self.0.lock().unwrap().asked.len()
    }

    /// Returns the number of requests for a path.
    pub(crate) fn count_of(&self, path: &str) -> usize {
        let state = self.0.lock().unwrap();
        state.asked.iter().filter(|asked| *asked == path).count()
    }

    pub(crate) fn asked_for(&self, path: &str) -> bool {
        self.0.lock().unwrap().asked.iter().any(|asked| asked == path)
    }
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

/// Returns the control planes of `server` after the list of kind `Good`.
async fn listed(server: &Server) -> ControlPlanes {
    let planes = ControlPlanes::new(
        server.client(),
        Requeues::default(),
        Vec::new(),
        Rollbacks::default(),
    );
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
#[case::silent(Way::NeverAnswers, "nothing was listed within 10 s")]
#[case::forbidden(
    Way::Refuses(403),
    "allows to get, list and watch bads in group controlplane.example.com"
)]
#[case::bug(Way::Panics, "its watch panicked")]
#[case::broken(Way::Refuses(500), "bads in group controlplane.example.com cannot be listed")]
#[tokio::test(start_paused = true)]
async fn an_unreadable_kind_affects_only_its_clusters(#[case] bad: Way, #[case] why: &str) {
    let (server, triggers) = (Server::new(bad), Requeues::default());
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

    server.set(|state| state.bad = Way::Answers);
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
    let server = Server::new(Way::Answers);
    server.set(|state| state.labelled = labelled);
    let planes = ControlPlanes::new(
        server.client(),
        Requeues::default(),
        Vec::new(),
        Rollbacks::default(),
    );
    let _reading = planes.get(&cluster(), &reference(group, kind));
    try_again().await;
    let found = message(planes.get(&cluster(), &reference(group, kind)));
    assert!(found.contains(why), "{found}");
    assert!(!server.asked_for("/apis/apps/v1/deployments"));
    assert!(!server.asked_for("/apis/controlplane.example.com/v1/goods"));
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_may_not_be_read_is_named_with_the_way_out() {
    let server = Server::new(Way::Answers);
    server.set(|state| state.definitions = Way::Refuses(403));
    let planes = ControlPlanes::new(
        server.client(),
        Requeues::default(),
        Vec::new(),
        Rollbacks::default(),
    );
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
    let server = Server::new(Way::Answers);
    server.set(|state| state.groups = Way::NeverAnswers);
    let planes = ControlPlanes::new(
        server.client(),
        Requeues::default(),
        Vec::new(),
        Rollbacks::default(),
    );
    let good = || planes.get(&cluster(), &reference(GROUP, "Good"));
    assert_eq!(good(), Err(Unknown::Reading));
    // The timeout of the request is three times as long.
    sleep(REQUEST.time / 2).await;
    let found = message(good());
    assert!(
        found.contains("did not complete its API discovery within 10 s"),
        "{found}"
    );

    server.set(|state| state.groups = Way::Answers);
    try_again().await;
    assert!(matches!(good(), Ok(Some(_))));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_nothing_asks_for_any_more_is_not_watched() {
    let server = Server::new(Way::Answers);
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
    let server = Server::new(Way::Answers);
    let planes = listed(&server).await;
    let good = || planes.get(&cluster(), &reference(GROUP, "Good"));

    server.set(|state| (state.good, state.served) = (Way::Refuses(404), false));
    try_again().await;
    let found = message(good());
    assert!(found.contains("the API server does not serve it"), "{found}");

    server.set(|state| (state.good, state.served) = (Way::Answers, true));
    try_again().await;
    assert!(matches!(good(), Ok(Some(_))));
}

#[rstest]
#[case::refusal(Way::Refuses(403))]
#[case::bug(Way::Panics)]
#[tokio::test(start_paused = true)]
async fn one_failure_of_a_watch_is_not_for_ever(#[case] failure: Way) {
    let server = Server::new(Way::Answers);
    let planes = listed(&server).await;
    let good = || planes.get(&cluster(), &reference(GROUP, "Good"));
    server.set(|state| state.watch = failure);
    sleep(Duration::from_secs(6)).await;
    server.set(|state| state.watch = Way::EndsLater);
    assert!(matches!(good(), Err(Unknown::Unreadable(_))));
    try_again().await;
    assert!(matches!(good(), Ok(Some(_))), "{:?}", good());
}

#[rstest]
#[case::refusal(Way::Refuses(403), 0)]
#[case::error(Way::Refuses(500), 45)]
#[case::error_after_a_head(Way::ErrorEvent(500), 45)]
#[case::no_answer(Way::NeverAnswers, 75)]
#[tokio::test(start_paused = true)]
async fn a_kind_whose_watch_brings_only_errors_is_believed_for_a_while(
    #[case] way: Way,
    #[case] seconds: u64,
) {
    let server = Server::new(Way::Answers);
    let planes = listed(&server).await;
    let good = || planes.get(&cluster(), &reference(GROUP, "Good"));
    server.set(|state| state.watch = way);
    // The open watch ends within five of them.
    sleep(Duration::from_secs(seconds.saturating_sub(1))).await;
    assert!(matches!(good(), Ok(Some(_))), "{:?}", good());
    sleep(Duration::from_secs(10)).await;
    for _ in 0..600 {
        let found = message(good());
        assert!(found.starts_with("ControlPlaneKindUnreadable: "), "{found}");
        sleep(Duration::from_secs(1)).await;
    }
    server.set(|state| state.watch = Way::EndsLater);
    try_again().await;
    assert!(matches!(good(), Ok(Some(_))), "{:?}", good());
}

/// Its first pages contain only known objects.
#[tokio::test(start_paused = true)]
async fn a_kind_whose_lists_are_interrupted_is_believed_for_a_while() {
    let server = Server::new(Way::Answers);
    let planes = listed(&server).await;
    server.set(|state| (state.watch, state.next_page) = (Way::ErrorEvent(410), Way::Refuses(500)));
    sleep(Duration::from_mins(1)).await;
    message(planes.get(&cluster(), &reference(GROUP, "Good")));
}

#[rstest]
#[case::error(Way::Refuses(500))]
#[case::no_answer(Way::NeverAnswers)]
#[tokio::test(start_paused = true)]
async fn errors_with_answers_between_them_do_not_add_up(#[case] way: Way) {
    let server = Server::new(Way::Answers);
    let planes = listed(&server).await;
    for _ in 0..20 {
        for (watch, seconds) in [(way, 20), (Way::EndsLater, 60)] {
            server.set(|state| state.watch = watch);
            for _ in 0..seconds {
                let good = planes.get(&cluster(), &reference(GROUP, "Good"));
                assert!(matches!(good, Ok(Some(_))), "{good:?}");
                sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_whose_watch_says_nothing_is_watched_again() {
    let server = Server::new(Way::Answers);
    let planes = listed(&server).await;
    let version = || {
        let good = planes.get(&cluster(), &reference(GROUP, "Good"));
        good.map(|facts| facts.and_then(|facts| facts.versions.spec_version))
    };
    server.set(|state| state.watch = Way::Mute);
    sleep(Duration::from_secs(10)).await;
    let watches = || server.count_of("/apis/controlplane.example.com/v1/goods");
    let before = watches();
    for _ in 0..160 {
        assert!(version().is_ok(), "{:?}", version());
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(watches() - before, 2, "one for each connection that was ended");

    server.set(|state| state.good = Way::NeverAnswers);
    sleep(Duration::from_secs(200)).await;
    let found = message(version().map(|_| None));
    assert!(found.starts_with("ControlPlaneKindUnreadable: "), "{found}");
}

#[tokio::test(start_paused = true)]
async fn a_group_of_the_operator_needs_no_label() {
    let server = Server::new(Way::Answers);
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
