//! Input that kube-apiserver accepts, decoded as each watched kind.

use kube::{
    ResourceExt as _,
    core::{DynamicObject, ObjectList, WatchEvent},
};
use proptest::prelude::*;
use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_crds::{
    decode::Limit,
    foreign::{
        App, Cluster, ClusterClass, ControlPlane, MachineDeployment, MachinePool, Package, PackageInstall,
    },
    labels::{annotation, label},
    lifecycle::{ClusterUpgrade, UpgradeGate},
    run::{ClusterBootstrap, ClusterBootstrapTemplate, TanzuKubernetesRelease},
};

use super::{Body, Item, Undecodable, list};
use crate::cache::{Cached, CachedObject, Dictionary};

/// More levels than serde_json reads, and than a tenant needs.
const DEEP: usize = 300;

/// A time that kube-apiserver accepts and jiff rejects.
const LATE: &str = "9999-12-31T23:59:59Z";

/// `levels` nested lists.
fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

/// An object of every kind at once, with more in its metadata and `rest` beside it, as text.
fn text(metadata: &str, rest: &str) -> String {
    format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Kind","metadata":{{"name":"odd","namespace":"team-a","uid":"u","resourceVersion":"7",
        "generation":3,"labels":{{"{}":"one"}}{metadata}}}{rest}}}"#,
        label::CAPI_CLUSTER_NAME
    )
}

/// Reads one object from a watch event, and from a page of a list between two valid objects.
fn read<K: Cached + Clone + std::fmt::Debug>(object: &str, good: &Value) -> Item<K> {
    let event = format!(r#"{{"type":"MODIFIED","object":{object}}}"#);
    let event: WatchEvent<Item<K>> =
        serde_json::from_str(&event).unwrap_or_else(|error| panic!("{error}: {event}"));
    let page = format!(
        r#"{{"apiVersion":"v1","kind":"List","metadata":{{"resourceVersion":"9"}},"items":[{good},{object},{good}]}}"#
    );
    let page: ObjectList<Item<K>> =
        serde_json::from_str(&page).unwrap_or_else(|error| panic!("{error}: {page}"));
    let [before, odd, after] = page.items.try_into().unwrap();
    assert!(
        matches!((&before, &after), (Item::Decoded(_), Item::Decoded(_))),
        "{before:?} {after:?}"
    );
    let (WatchEvent::Modified(item), name) = (event, odd.name_any()) else {
        panic!("another event");
    };
    assert_eq!((item.name_any(), name), ("odd".to_owned(), "odd".to_owned()));
    assert_eq!(item.namespace().as_deref(), Some("team-a"));
    assert_eq!(
        item.resource_version().as_deref(),
        Some("7"),
        "watches go on from it"
    );
    assert_eq!(item.labels()[label::CAPI_CLUSTER_NAME], "one");
    item
}

/// A valid object of any kind.
fn good() -> Value {
    let mut good: Value = serde_json::from_str(&text("", "")).unwrap();
    good["spec"] = json!({
        "version": "v1.36.3", "kubernetes": {"version": "v1.36.3"}, "refName": "a", "template": {"spec": {}},
        "mode": "Audit", "clusterSelector": {}, "before": "Workers", "checks": [],
    });
    good
}

/// Decodes the object as each watched kind and returns the undecodable results.
fn every_kind(object: &str) -> Vec<Option<Undecodable>> {
    fn one<K: Cached + Clone + std::fmt::Debug>(object: &str) -> Option<Undecodable> {
        match read::<K>(object, &good()) {
            Item::Decoded(object) => {
                // The cached text must stay readable: anything else would end the process.
                let _parsed = CachedObject::of(object, &mut Dictionary::default()).parse();
                None
            }
            Item::Undecodable(object) => Some(*object),
        }
    }
    vec![
        one::<Cluster>(object),
        one::<ClusterBootstrap>(object),
        one::<ClusterBootstrapTemplate>(object),
        one::<TanzuKubernetesRelease>(object),
        one::<ClusterClass>(object),
        one::<MachineDeployment>(object),
        one::<MachinePool>(object),
        one::<Package>(object),
        one::<PackageInstall>(object),
        one::<App>(object),
        one::<ControlPlane>(object),
        one::<DynamicObject>(object),
        one::<UpgradeGate>(object),
        one::<ClusterUpgrade>(object),
    ]
}

#[rstest]
#[case::a_late_time(format!(r#","managedFields":[{{"manager":"a","operation":"Update","time":"{LATE}"}}]"#))]
#[case::depth(format!(r#","managedFields":[{{"manager":"a","fieldsV1":{{"f:a":{}}}}}]"#, nested(DEEP)))]
fn odd_managed_fields_are_no_matter(#[case] metadata: String) {
    let spec = good()["spec"].to_string();
    let object = text(&metadata, &format!(r#","spec":{spec}"#));
    assert_eq!(every_kind(&object), [const { None }; 14]);
    let Item::Decoded(Body(value)) = Item::<Body>::of(&object).unwrap() else {
        panic!("a read by name fails");
    };
    assert_eq!(value["metadata"]["managedFields"], Value::Null);
}

#[test]
fn depth_is_the_matter_of_the_object() {
    let deep = nested(DEEP);
    let deep = format!(r#"{{"a":{deep}}}"#);
    let free = text(
        "",
        &format!(r#","spec":{{"cni":{{"refName":"antrea","valuesFrom":{{"inline":{deep}}}}}}}"#),
    );
    let Some(object) = every_kind(&free)[1].clone() else {
        panic!("it was decoded");
    };
    assert_eq!(
        object.to_string(),
        format!(
            "Kind team-a/odd cannot be decoded: {}; correct it or delete it",
            object.why
        )
    );
    assert!(
        object.why.starts_with("field spec.cni.valuesFrom"),
        "{}",
        object.why
    );
    assert!(
        object.why.ends_with("it is nested deeper than 127 levels"),
        "{}",
        object.why
    );
    let variable = |name: &str| {
        let spec = format!(
            r#","spec":{{"topology":{{"classRef":{{"name":"c"}},"version":"v1","variables":[{{"name":"{name}","value":{deep}}}]}}}}"#
        );
        every_kind(&text("", &spec))[0].clone().map(|cluster| cluster.why)
    };
    let why = variable("TKR_DATA").unwrap_or_default();
    assert!(
        why.starts_with("field spec.topology.variables[0].value of TKR_DATA.a[0]"),
        "{why}"
    );
    assert!(why.ends_with("it is nested deeper than 127 levels"), "{why}");
    assert_eq!(variable("other"), None, "Sluice does not read it");
}

/// An undecodable Cluster still shows whether it has to be resolved.
#[rstest]
#[case::same_namespace(r#""topology":{"classRef":{"name":"c"}"#, Some(("c", None)))]
#[case::another_namespace(r#""topology":{"classRef":{"name":"c","namespace":"n"}"#, Some(("c", Some("n"))))]
#[case::as_before_v1beta2(r#""topology":{"class":"c","classNamespace":"n""#, Some(("c", Some("n"))))]
#[case::no_name(r#""topology":{"classRef":{}"#, None)]
#[case::no_class(r#""topology":{"version":"v1""#, None)]
fn the_class_of_a_cluster_is_read(#[case] topology: &str, #[case] class: Option<(&str, Option<&str>)>) {
    let asks = format!(
        r#","annotations":{{"{}":"","other":"a"}}"#,
        annotation::RESOLVE_TKR
    );
    let deep = nested(DEEP);
    let spec = format!(r#","spec":{{{topology},"variables":[{{"name":"TKR_DATA","value":{deep}}}]}}}}"#);
    let Some(cluster) = every_kind(&text(&asks, &spec))[0].clone() else {
        panic!("it was decoded");
    };
    let read = cluster.class.as_ref();
    assert_eq!(
        read.map(|class| (class.name.as_str(), class.namespace.as_deref())),
        class
    );
    let annotations = cluster.metadata.annotations.unwrap_or_default();
    assert_eq!(annotations.keys().collect::<Vec<_>>(), [annotation::RESOLVE_TKR]);
}

#[test]
fn a_list_names_the_object_that_cannot_be_decoded() {
    let items = |object: &str| {
        let list = list(
            &format!(r#"{{"kind":"SecretList","items":[{},{object}]}}"#, good()),
            Limit::whole(1024 * 1024),
        );
        list.unwrap()
            .map(|objects| objects.len())
            .map_err(|object| object.reference().to_string())
    };
    assert_eq!(items(&good().to_string()), Ok(2));
    assert_eq!(
        items(&text("", &format!(r#","data":{}"#, nested(DEEP)))),
        Err("team-a/odd".to_owned())
    );
}

#[test]
fn objects_without_a_name_are_refused() {
    assert!(Item::<Cluster>::of(r#"{"metadata":{"name":7}}"#).is_none());
    assert!(serde_json::from_str::<WatchEvent<Item<Cluster>>>(r#"{"type":"ADDED","object":7}"#).is_err());
}

/// JSON as text, including forms that serde_json itself never writes.
fn json_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just(format!("\"{LATE}\"")),
        Just("\"0001-01-01T00:00:00Z\"".to_owned()),
        Just("\"\\ud800\"".to_owned()),
        Just("\"\\u0000\\ufffd\"".to_owned()),
        Just(nested(DEEP)),
        Just("1e308".to_owned()),
        Just("-0".to_owned()),
        "[1-9][0-9]{0,400}".prop_map(|number| number),
        any::<i64>().prop_map(|number| number.to_string()),
        "[a-z]{0,8}".prop_map(|text| format!("\"{text}\"")),
    ];
    leaf.prop_recursive(6, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((field(), inner), 0..6).prop_map(|fields| fields_of(&fields)),
        ]
    })
}

fn fields_of(fields: &[(String, String)]) -> String {
    let fields = fields.iter().map(|(name, value)| format!("\"{name}\":{value}"));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

/// Fields after others.
fn beside(fields: &[(String, String)]) -> String {
    let fields = fields
        .iter()
        .flat_map(|(name, value)| [",\"", name, "\":", value]);
    fields.collect()
}

/// Names of fields, some of which some kind reads.
fn field() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(vec![
            "spec", "status", "topology", "version", "variables", "value", "name", "cni", "valuesFrom", "inline", "additionalPackages",
            "kubernetes", "template", "conditions", "lastTransitionTime", "type", "replicas", "paused", "upgrade", "packageRef",
            "versionSelection", "values", "secretRef", "controlPlaneRef", "fetch", "deploy", "observedGeneration", "data", "x",
            "clusterSelector", "checks", "versions", "history", "since",
        ]).prop_map(str::to_owned),
        1 => Just("\\ud800".to_owned()),
        1 => "[a-z]{1,6}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any content of an object gives one item: never an error of the stream, never a panic.
    #[test]
    fn no_object_breaks_a_list_or_a_watch(
        metadata in prop::collection::vec(
            (prop::sample::select(vec!["managedFields", "annotations", "creationTimestamp", "finalizers", "ownerReferences", "x"]).prop_map(str::to_owned), json_text()),
            0..3,
        ),
        rest in prop::collection::vec((field(), json_text()), 0..5),
    ) {
        for object in every_kind(&text(&beside(&metadata), &beside(&rest))).into_iter().flatten() {
            prop_assert!(object.why.len() < 600, "{}", object.why);
        }
    }
}

/// The property above fails if all objects are decoded at once.
#[test]
fn a_page_of_plain_objects_breaks() {
    fn breaks<K: DeserializeOwned + Clone>(object: &str) -> bool {
        serde_json::from_str::<WatchEvent<K>>(&format!(r#"{{"type":"ADDED","object":{object}}}"#)).is_err()
    }
    let late = format!(r#","managedFields":[{{"manager":"a","operation":"Update","time":"{LATE}"}}]"#);
    assert!(breaks::<Cluster>(&text(&late, r#","spec":{}"#)));
    assert!(breaks::<DynamicObject>(&text(
        "",
        &format!(r#","data":{}"#, nested(DEEP))
    )));
}

/// An annotation that blocks an upgrade is read whatever else a user annotates.
#[test]
fn read_metadata_is_kept_beside_large_unread_metadata() {
    let hook = format!("{}/backup", annotation::BEFORE_UPGRADE_PREFIX);
    let mut annotations: std::collections::BTreeMap<String, String> = (0..1000)
        .map(|number| (format!("a-{number}"), "text".repeat(8)))
        .collect();
    annotations.insert(hook.clone(), String::new());
    let object = json!({
        "metadata": {"name": "one", "annotations": annotations, "labels": {"z": "1", label::TKR: "v1"}},
        "spec": {"topology": {"version": "v1.36.3"}},
    });
    let Some(Item::Decoded(cluster)) = Item::<Cluster>::of(&object.to_string()) else {
        panic!("it cannot be decoded");
    };
    assert!(cluster.annotations().contains_key(&hook));
    let kept: usize = cluster
        .annotations()
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    assert!(kept < 5 * 1024, "{kept} bytes");
    assert_eq!(cluster.labels()[label::TKR], "v1");
}

/// A selector may match any label.
#[test]
fn all_labels_of_values_sources_are_kept() {
    let labels: std::collections::BTreeMap<String, String> = (0..1000)
        .map(|number| (format!("a-{number}"), "text".repeat(8)))
        .collect();
    let object =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one", "labels": labels}});
    let Some(Item::Decoded(namespace)) = Item::<DynamicObject>::of(&object.to_string()) else {
        panic!("it cannot be decoded");
    };
    assert_eq!(namespace.labels(), &labels);
    assert_eq!(namespace.types.unwrap().kind, "Namespace");
}

#[test]
fn a_field_that_takes_too_much_is_named_with_its_limit() {
    let variables = |name: &str, count: usize| {
        let value = vec![json!({"a": 0}); count];
        let object = json!({
            "metadata": {"name": "one"},
            "spec": {"topology": {"version": "v1.36.3", "variables": [{"name": name, "value": value}]}},
        });
        Item::<Cluster>::of(&object.to_string()).unwrap()
    };
    assert!(
        matches!(variables("any", 10_000), Item::Decoded(_)),
        "nothing reads it"
    );
    let Item::Undecodable(object) = variables("TKR_DATA", 10_000) else {
        panic!("it takes too much");
    };
    let said = object.to_string();
    assert!(
        said.contains("field spec.topology.variables[0].value of TKR_DATA["),
        "{said}"
    );
    assert!(
        said.contains("].a: it takes more than 512 KiB of memory; "),
        "{said}"
    );
}

#[rstest]
#[case::of_metadata(
    r#"{"metadata":{"name":"one","generation":"7"}}"#,
    "metadata.generation: it has to be i64"
)]
#[case::of_a_label(
    r#"{"metadata":{"name":"one","labels":{"a":7}}}"#,
    "metadata.labels.a: it has to be a string"
)]
#[case::after_an_ignored_fault(
    r#"{"spec":{"clusterNetwork":{"pods":{"cidrBlocks":[7]}}},"metadata":{"name":"one","uid":7}}"#,
    "metadata.uid: it has to be a string"
)]
#[case::in_values(
    r#"{"metadata":{"name":"one"},"spec":{"topology":{"variables":[{"name":"TKR_DATA","value":{"$serde_json::private::RawValue":"{}"}}]}}}"#,
    "spec.topology.variables[0].value of TKR_DATA: it has a value that this kind cannot have"
)]
fn the_field_of_a_fault_is_named(#[case] object: &str, #[case] expected: &str) {
    let Some(Item::Undecodable(object)) = Item::<Cluster>::of(object) else {
        panic!("it can be decoded");
    };
    assert_eq!(object.why, format!("field {expected}"));
}

/// serde_json reads the value of such a field as JSON, beyond any limit of memory or depth.
#[rstest]
#[case::plain(r#"{"$serde_json::private::RawValue":"[[1]]"}"#)]
#[case::escaped(r#"{"\u0024serde_json::private::RawValue":"[\u007b\u007d]"}"#)]
#[case::nested(r#"{"a":[{"$serde_json::private::RawValue":"1"}]}"#)]
#[case::second(r#"{"a":1,"$serde_json::private::RawValue":"1"}"#)]
fn a_field_with_the_reserved_name_of_serde_json_is_refused(#[case] value: &str) {
    let object = format!(r#"{{"kind":"Any","metadata":{{"name":"one"}},"spec":{value}}}"#);
    let decoded = Item::<DynamicObject>::of(&object).unwrap();
    assert!(matches!(decoded, Item::Undecodable(_)), "{decoded:?}");
    let page = format!(r#"{{"kind":"AnyList","metadata":{{}},"items":[{object}]}}"#);
    assert!(matches!(list(&page, Limit::whole(1 << 20)), Some(Err(_))));
}

/// serde's own message repeats a text of a wrong type.
#[test]
fn an_error_about_a_long_text_is_short() {
    let text = "\u{1}".repeat(100_000);
    for place in ["labels", "finalizers", "generation"] {
        let object = json!({"metadata": {place: text}}).to_string();
        let read = sluice_crds::decode::from_str::<Cluster>(&object, Limit::whole(usize::MAX));
        let error = read.err().map(|error| error.to_string().len());
        assert!(
            error.is_some_and(|bytes| bytes < 1200),
            "{place}: {error:?} bytes"
        );
    }
}

/// The response of another server than an API server must not count as a list without these objects.
#[test]
fn a_list_of_objects_without_names_is_no_list() {
    for item in ["{}", r#"{"a":0}"#, r#"{"metadata":{"namespace":"team-a"}}"#] {
        let page = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{item}]}}"#);
        assert!(
            serde_json::from_str::<ObjectList<Item<PackageInstall>>>(&page).is_err(),
            "{item}"
        );
        let event = format!(r#"{{"type":"ADDED","object":{item}}}"#);
        assert!(
            serde_json::from_str::<WatchEvent<Item<PackageInstall>>>(&event).is_err(),
            "{item}"
        );
    }
}
