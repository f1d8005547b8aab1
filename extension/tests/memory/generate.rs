//! Objects of every kind at once, with something large in one place.

use std::fmt;

use proptest::prelude::*;

/// An object as text.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) json: String,
    /// Where it is large, and with what.
    pub(crate) place: String,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.place, self.json.len())
    }
}

/// Where it is large: `@` is what is there. Fields that some kind reads, fields that none reads, and lists of what a kind reads.
const PLACES: [&str; 22] = [
    r#""spec":{"topology":{"classRef":{"name":"c"},"version":"v1.36.3","variables":[{"name":"other","value":@}]}}"#,
    r#""spec":{"topology":{"classRef":{"name":"c"},"version":"v1.36.3","variables":[{"name":"TKR_DATA","value":@}]}}"#,
    r#""spec":{"topology":{"version":"v1.36.3","variables":@}}"#,
    r#""spec":{"topology":{"version":"v1.36.3","workers":{"machineDeployments":@}}}"#,
    r#""spec":{"topology":{"version":"v1.36.3","controlPlane":{"metadata":{"labels":@}}}}"#,
    r#""spec":{"topology":{"version":@}}"#,
    r#""spec":{"cni":{"refName":"a","valuesFrom":{"inline":{"a":@}}}}"#,
    r#""spec":{"additionalPackages":@}"#,
    r#""spec":{"kubernetes":{"version":"v1.36.3","a":@},"bootstrapPackages":@}"#,
    r#""spec":{"refName":"a","version":"1","template":{"spec":{"fetch":@}}}"#,
    r#""spec":{"refName":"a","version":"1","valuesSchema":{"openAPIv3":@}}"#,
    r#""spec":{"values":@,"serviceAccountName":"a"}"#,
    r#""spec":{"template":@,"image":{"ref":@},"osImages":@}"#,
    r#""spec":{"variables":@,"kubernetesVersions":@}"#,
    r#""spec":{"version":"v1.36.3","machineTemplate":@}"#,
    r#""spec":@"#,
    r#""spec":{"version":"v1.36.3"},"status":{"conditions":@,"version":"v1.36.3","versions":@}"#,
    r#""spec":{},"status":{"deploy":{"stdout":@},"usefulErrorMessage":@,"inspect":@}"#,
    r#""spec":{},"status":@"#,
    r#""spec":{},"other":@"#,
    r#""spec":{},"data":@"#,
    r#""spec":{},"status":{"upgrade":{"schema":1,"packages":@,"gates":@},"history":@}"#,
];

/// Of metadata.
const OF_METADATA: [&str; 5] = [
    r#""labels":@"#,
    r#""annotations":@"#,
    r#""finalizers":@"#,
    r#""ownerReferences":@"#,
    r#""managedFields":@,"other":@"#,
];

/// Something large of about so many bytes.
fn large(bytes: usize) -> impl Strategy<Value = (&'static str, String)> {
    let list = move |of: &str| format!("[{}]", vec![of; bytes / (of.len() + 1) + 1].join(","));
    let map = move |value: &str| {
        let each = value.len() + 12;
        let entries = (0..=bytes / each).map(|number| format!(r#""k{number:07}":{value}"#));
        format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
    };
    prop_oneof![
        Just(("maps with a field", list(r#"{"a":0}"#))),
        Just(("empty maps", list("{}"))),
        Just(("empty lists", list("[]"))),
        Just(("empty texts", list(r#""""#))),
        Just(("numbers", list("0"))),
        Just((
            "named maps",
            list(r#"{"name":"a","class":"b","refName":"c","version":"v1","type":"t","status":"s"}"#)
        )),
        Just(("long lists", list("[[[[{\"a\":[]}]]]]"))),
        Just(("a text", format!("\"{}\"", "x".repeat(bytes)))),
        Just(("escapes", format!("\"{}\"", "\\u0001".repeat(bytes / 6 + 1)))),
        Just(("keys", map(r#""""#))),
        Just(("keys of maps", map("{}"))),
        Just(("levels", format!("{}{}", "[".repeat(300), "]".repeat(300)))),
        Just((
            "levels of maps",
            format!("{}0{}", r#"{"a":"#.repeat(120), "}".repeat(120))
        )),
        "[a-zA-Z0-9+/]{64}".prop_map(move |text| ("text without repetition", noise(&text, bytes))),
    ]
}

/// A text that does not compress.
fn noise(seed: &str, bytes: usize) -> String {
    let mut state = seed.bytes().fold(1_u64, |state, byte| {
        state.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    let letters = (0..bytes).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + u8::try_from((state >> 33) % 75).unwrap_or_default()).to_ascii_lowercase()
    });
    let text: String = letters.filter(char::is_ascii_alphanumeric).collect();
    format!("\"{text}\"")
}

/// Cases of up to 1.4 MB, as etcd takes them.
pub(crate) fn cases() -> impl Strategy<Value = Case> {
    let bytes = prop_oneof![Just(100_usize), Just(20_000), Just(300_000), Just(1_400_000)];
    let place = prop_oneof![
        4 => prop::sample::select(&PLACES).prop_map(|place| (String::new(), place.to_owned())),
        1 => prop::sample::select(&OF_METADATA).prop_map(|place| (format!(",{place}"), "\"spec\":{}".to_owned())),
    ];
    (bytes, place).prop_flat_map(|(bytes, (metadata, rest))| {
        let places = metadata.matches('@').count() + rest.matches('@').count();
        large(bytes / places.max(1)).prop_map(move |(what, large)| {
            let metadata = metadata.replace('@', &large);
            let body = rest.replace('@', &large);
            Case {
                json: format!(
                    r#"{{"apiVersion":"a/v1","kind":"Kind","metadata":{{"name":"one","namespace":"team-a","uid":"u","resourceVersion":"7"{metadata}}},{body}}}"#
                ),
                place: format!("{what} at {metadata:.20}{rest}"),
            }
        })
    })
}
