//! `sluice override`: creates, lists and revokes UpgradeOverrides, with the rights of the user.

mod create;
mod list;
mod revoke;
mod step;

use std::process::ExitCode;

use crate::{arguments::OverrideVerb, connection::Trouble, reader::one, terminal::Terminal};

pub(super) async fn run(verb: &OverrideVerb, terminal: &Terminal) -> Result<ExitCode, Trouble> {
    match verb {
        OverrideVerb::Create(asked) => create::create(asked).await,
        OverrideVerb::List(asked) => list::list(asked, terminal).await,
        OverrideVerb::Revoke(asked) => revoke::revoke(asked).await,
    }
}

/// Returns the error of a failed request about an UpgradeOverride.
fn not_answered(verb: &str, (namespace, name): (&str, &str), why: &str) -> Trouble {
    let text = format!("{verb} UpgradeOverride {namespace}/{name}: {why}");
    Trouble::NotAnswered(one(&text))
}

#[cfg(test)]
mod tests;
