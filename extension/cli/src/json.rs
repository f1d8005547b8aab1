//! JSON encoding of messages by protobuf's own mapping, including empty fields.

use std::sync::OnceLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};

use super::connection::Trouble;

/// Encodes `message` of the type `sluice.status.v1.<name>`, on one line or as a document.
///
/// # Errors
/// The message has another type.
pub(super) fn json(name: &str, message: &impl Message, pretty: bool) -> Result<String, Trouble> {
    static POOL: OnceLock<Option<DescriptorPool>> = OnceLock::new();
    let wrong = |error: &dyn std::fmt::Display| Trouble::Usage(format!("write a {name} as JSON: {error}"));
    let pool = POOL.get_or_init(|| DescriptorPool::decode(sluice_proto::DESCRIPTORS).ok());
    let described = pool
        .as_ref()
        .and_then(|pool| pool.get_message_by_name(&format!("sluice.status.v1.{name}")));
    let described = described.ok_or_else(|| wrong(&"it is not described"))?;
    let dynamic = DynamicMessage::decode(described, message.encode_to_vec().as_slice());
    let dynamic = dynamic.map_err(|error| wrong(&error))?;
    let options = SerializeOptions::new().skip_default_fields(false);
    let value = dynamic.serialize_with_options(serde_json::value::Serializer, &options);
    let value = value.map_err(|error| wrong(&error))?;
    let text = if pretty {
        serde_json::to_string_pretty(&value)
    } else {
        serde_json::to_string(&value)
    };
    text.map_err(|error| wrong(&error))
}

#[cfg(test)]
mod tests {
    use sluice_proto::status::v1::{Change, Cluster, Upgrade, WatchClustersResponse};

    use super::*;

    #[test]
    fn every_field_is_there_and_enums_have_names() {
        let message = WatchClustersResponse {
            change: Change::Updated.into(),
            cluster: Some(Cluster {
                name: "one\u{1b}".to_owned(),
                upgrade: Some(Upgrade::default()),
                ..Cluster::default()
            }),
        };
        let line = json("WatchClustersResponse", &message, false).unwrap();
        for part in [
            r#""change":"CHANGE_UPDATED""#,
            r#""managed":false"#,
            r#""gates":[]"#,
            r#""outcome":"OUTCOME_UNSPECIFIED""#,
            r#""name":"one\u001b""#,
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert_eq!(line.lines().count(), 1);
        assert!(json("Nothing", &message, false).is_err());
    }
}
