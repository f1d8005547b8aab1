//! The service is compatible with clients of its last release: same messages, fields, numbers, names and types.
#![expect(clippy::unwrap_used, reason = "a test that cannot read its inputs has failed")]

use std::{collections::BTreeMap, fmt::Debug};

use prost::Message as _;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet, ServiceDescriptorProto,
};

/// What was released last; see `examples/descriptors.rs`.
const RELEASED: &[u8] = include_bytes!("../released/status-v1.binpb");

/// Everything that a client of the service may rest on, by its full name.
fn facts(set: &FileDescriptorSet) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    for file in &set.file {
        let package = file.package().to_owned();
        for message in &file.message_type {
            message_facts(&package, message, &mut facts);
        }
        for one in &file.enum_type {
            enum_facts(&package, one, &mut facts);
        }
        for service in &file.service {
            service_facts(&package, service, &mut facts);
        }
    }
    facts
}

fn message_facts(parent: &str, message: &DescriptorProto, facts: &mut BTreeMap<String, String>) {
    let name = format!("{parent}.{}", message.name());
    for field in &message.field {
        let FieldDescriptorProto {
            name: field_name,
            label,
            r#type,
            type_name,
            json_name,
            oneof_index,
            proto3_optional,
            ..
        } = field;
        let shape: [&dyn Debug; 7] = [
            field_name,
            label,
            r#type,
            type_name,
            json_name,
            oneof_index,
            proto3_optional,
        ];
        facts.insert(
            format!("field {} of {name}", field.number()),
            format!("{shape:?}"),
        );
    }
    for nested in &message.nested_type {
        message_facts(&name, nested, facts);
    }
    for one in &message.enum_type {
        enum_facts(&name, one, facts);
    }
    facts.insert(format!("message {name}"), String::new());
}

fn enum_facts(parent: &str, one: &EnumDescriptorProto, facts: &mut BTreeMap<String, String>) {
    for value in &one.value {
        let name = format!("value {} of {parent}.{}", value.number(), one.name());
        facts.insert(name, value.name().to_owned());
    }
}

fn service_facts(package: &str, service: &ServiceDescriptorProto, facts: &mut BTreeMap<String, String>) {
    for method in &service.method {
        let shape: [&dyn Debug; 4] = [
            &method.input_type,
            &method.output_type,
            &method.client_streaming(),
            &method.server_streaming(),
        ];
        facts.insert(
            format!("method {package}.{}.{}", service.name(), method.name()),
            format!("{shape:?}"),
        );
    }
}

/// What of `before` is gone or different in `after`.
fn broken(before: &FileDescriptorSet, after: &FileDescriptorSet) -> Vec<String> {
    let (before, after) = (facts(before), facts(after));
    let lost = before
        .into_iter()
        .filter(|(name, fact)| after.get(name) != Some(fact));
    lost.map(|(name, fact)| {
        let now = after.get(&name).map_or("gone", String::as_str);
        format!("{name}: {fact} was released, and now it is {now}")
    })
    .collect()
}

fn decoded(bytes: &[u8]) -> FileDescriptorSet {
    FileDescriptorSet::decode(bytes).unwrap()
}

#[test]
fn what_was_released_is_still_there() {
    let released = decoded(RELEASED);
    assert!(
        facts(&released).len() > 40,
        "the released descriptor is not what this test takes it for"
    );
    let broken = broken(&released, &decoded(sluice_proto::DESCRIPTORS));
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The file of the service, in the released set.
fn altered(alter: impl FnOnce(&mut prost_types::FileDescriptorProto)) -> Vec<String> {
    let released = decoded(RELEASED);
    let mut changed = released.clone();
    let own = changed
        .file
        .iter_mut()
        .find(|file| file.package() == "sluice.status.v1");
    alter(own.unwrap());
    broken(&released, &changed)
}

#[test]
fn every_kind_of_break_is_found_and_an_addition_is_none() {
    let message = |file: &mut prost_types::FileDescriptorProto, name: &str| {
        file.message_type
            .iter()
            .position(|message| message.name() == name)
            .unwrap()
    };
    let none = altered(|file| {
        let at = message(file, "Cluster");
        file.message_type[at].field.push(FieldDescriptorProto {
            name: Some("added".to_owned()),
            number: Some(100),
            ..FieldDescriptorProto::default()
        });
        file.enum_type[0]
            .value
            .push(prost_types::EnumValueDescriptorProto {
                name: Some("CHANGE_ADDED".to_owned()),
                number: Some(100),
                options: None,
            });
    });
    assert_eq!(none, Vec::<String>::new());
    let breaks = [
        altered(|file| {
            let at = message(file, "Gate");
            file.message_type[at].field.remove(0);
        }),
        altered(|file| {
            let at = message(file, "Gate");
            file.message_type[at].field[0].number = Some(9);
        }),
        altered(|file| {
            let at = message(file, "Gate");
            file.message_type[at].field[0].name = Some("other".to_owned());
        }),
        altered(|file| {
            let at = message(file, "Upgrade");
            file.message_type[at].field[4].r#type = Some(5);
        }),
        altered(|file| {
            let at = message(file, "Upgrade");
            file.message_type[at].field[6].label = Some(1);
        }),
        altered(|file| {
            let at = message(file, "GetClusterRequest");
            file.message_type.remove(at);
        }),
        altered(|file| file.enum_type[0].value[1].name = Some("OTHER".to_owned())),
        altered(|file| file.enum_type[0].value[1].number = Some(9)),
        altered(|file| file.service[0].method.clear()),
        altered(|file| file.service[0].method[2].server_streaming = None),
        altered(|file| file.package = Some("sluice.status.v2".to_owned())),
    ];
    for (number, found) in breaks.iter().enumerate() {
        assert!(!found.is_empty(), "break {number} was not found");
    }
}
