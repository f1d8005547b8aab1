use rstest::rstest;
use serde_json::json;

use super::*;

/// Returns a discovered ExtensionConfig with a handler for each hook, changed by `change`.
fn read(name: &str, change: impl FnOnce(&mut Value)) -> ReadConfig {
    let handlers: Vec<Value> = Hook::ALL
        .iter()
        .map(|hook| {
            json!({
                "name": format!("{}.{name}", hook.as_str().to_lowercase()), "failurePolicy": "Fail",
                "requestHook": {"apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1", "hook": hook.as_str()},
            })
        })
        .collect();
    let mut config = json!({
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}},
        "status": {"handlers": handlers, "conditions": [{"type": "Discovered", "status": "True", "reason": "Any"}]},
    });
    change(&mut config);
    ReadConfig {
        name: name.to_owned(),
        config: Ok(Some(config)),
        offered: Hook::ALL.to_vec(),
    }
}

fn absent(name: &str) -> ReadConfig {
    ReadConfig {
        config: Ok(None),
        ..read(name, |_| {})
    }
}

fn undiscovered(name: &str) -> ReadConfig {
    read(name, |config| {
        config["status"] =
            json!({"conditions": [{"type": "Discovered", "status": "False", "reason": "Any"}]});
    })
}

fn unreadable(name: &str) -> ReadConfig {
    ReadConfig {
        config: Err("refused".to_owned()),
        ..read(name, |_| {})
    }
}

fn reason(configs: &[ReadConfig], selects: &Result<bool, String>) -> Option<NotInForceReason> {
    not_in_force(configs, "team-a", |_| selects.clone()).map(|found| found.reason)
}

#[rstest]
#[case::in_force(read("sluice", |_| {}), Ok(true), None)]
#[case::absent(absent("sluice"), Ok(true), Some(NotInForceReason::ExtensionConfigMissing))]
#[case::unreadable(unreadable("sluice"), Ok(true), Some(NotInForceReason::Unreadable))]
#[case::undiscovered(undiscovered("sluice"), Ok(true), Some(NotInForceReason::NotDiscovered))]
#[case::no_longer_discovered(
    read("sluice", |config| config["status"]["conditions"][0]["status"] = json!("False")),
    Ok(true),
    None
)]
#[case::no_longer_discovered_elsewhere(
    read("sluice", |config| config["status"]["conditions"][0]["status"] = json!("False")),
    Ok(false),
    Some(NotInForceReason::NamespaceNotSelected)
)]
#[case::deleted(
    read("sluice", |config| config["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")),
    Ok(true),
    Some(NotInForceReason::NotDiscovered)
)]
#[case::unselected(read("sluice", |_| {}), Ok(false), Some(NotInForceReason::NamespaceNotSelected))]
#[case::unknown_namespaces(read("sluice", |_| {}), Err("refused".to_owned()), Some(NotInForceReason::Unreadable))]
#[case::without_a_handler(
    read("sluice", |config| config["status"]["handlers"][3]["requestHook"]["hook"] = json!("Other")),
    Ok(true),
    Some(NotInForceReason::HandlersMissing)
)]
#[case::without_handlers(
    read("sluice", |config| config["status"]["handlers"] = Value::Null),
    Ok(true),
    Some(NotInForceReason::HandlersMissing)
)]
#[case::a_handler_of_another_group(
    read("sluice", |config| config["status"]["handlers"][3]["requestHook"]["apiVersion"] = json!("other/v1")),
    Ok(true),
    Some(NotInForceReason::HandlersMissing)
)]
#[case::ignored(
    read("sluice", |config| config["status"]["handlers"][2]["failurePolicy"] = json!("Ignore")),
    Ok(true),
    Some(NotInForceReason::FailurePolicyIgnore)
)]
fn each_obstacle_has_a_reason(
    #[case] config: ReadConfig,
    #[case] selects: Result<bool, String>,
    #[case] expected: Option<NotInForceReason>,
) {
    assert_eq!(reason(&[config], &selects), expected);
}

#[test]
fn one_of_several_is_enough() {
    let whole = read("sluice", |_| {});
    assert_eq!(reason(&[absent("other"), whole.clone()], &Ok(true)), None);
    assert_eq!(reason(&[unreadable("other"), whole], &Ok(true)), None);
    assert_eq!(reason(&[], &Ok(true)), None, "no ExtensionConfig is expected");
    let undiscovered = undiscovered("one");
    let found = not_in_force(&[undiscovered.clone(), absent("two")], "team-a", |_| Ok(true));
    assert_eq!(
        found.map(|found| found.reason),
        Some(NotInForceReason::NotDiscovered)
    );
    assert_eq!(
        reason(&[undiscovered, unreadable("two")], &Ok(true)),
        Some(NotInForceReason::Unreadable)
    );
}

#[test]
fn messages_name_the_missing_hooks_and_the_namespace() {
    let without = read("sluice", |config| {
        config["status"]["handlers"][3]["requestHook"]["hook"] = json!("Other");
    });
    let found = not_in_force(&[without], "team-a", |_| Ok(true)).unwrap();
    assert!(
        found.message.contains("lacks BeforeControlPlaneUpgrade;"),
        "{}",
        found.message
    );
    let found = not_in_force(&[read("sluice", |_| {})], "team-a", |_| Ok(false)).unwrap();
    assert!(found.message.contains("namespace team-a"), "{}", found.message);
}

#[test]
fn only_a_missing_hook_that_holds_upgrades_is_certain() {
    for (at, is_certain) in [
        (0, false),
        (1, false),
        (2, true),
        (3, true),
        (4, true),
        (5, true),
        (8, false),
    ] {
        let without = read("sluice", |config| {
            config["status"]["handlers"][at]["requestHook"]["hook"] = json!("Other");
        });
        let found = not_in_force(&[without], "team-a", |_| Ok(true)).unwrap();
        assert_eq!(found.is_certain, is_certain, "{}", found.message);
    }
}

#[test]
fn the_text_of_a_failed_request_is_left_out() {
    let said = |text: &str| {
        let unread = ReadConfig {
            config: Err(text.to_owned()),
            ..read("sluice", |_| {})
        };
        let unknown = |_: &ReadConfig| Err(text.to_owned());
        (
            not_in_force(&[unread], "team-a", |_| Ok(true)),
            not_in_force(&[read("sluice", |_| {})], "team-a", unknown),
        )
    };
    assert_eq!(said("timed out"), said("leader changed"));
}

#[test]
fn the_message_of_another_component_is_left_out() {
    let said = |message: &str| {
        let config = read("sluice", |config| {
            let condition = json!({"type": "Discovered", "status": "False", "reason": "DiscoveryFailed", "message": message});
            config["status"] = json!({"conditions": [condition]});
        });
        not_in_force(&[config], "team-a", |_| Ok(true))
    };
    assert_eq!(said("dial tcp: port 40001"), said("dial tcp: port 40002"));
}
