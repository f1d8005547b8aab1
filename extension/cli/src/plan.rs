//! `sluice plan`: shows the steps of an upgrade and what will hold it, by reads with the rights of the user.

mod client;
mod ignored;
mod not_made;
mod objects;
mod output;
mod reads;
mod workload;

use std::{process::ExitCode, time::Instant};

use jiff::Timestamp;
use sluice_core::{
    clock::Clock,
    protocol::ReadResult,
    reasons::Hold,
    reconcile::cluster::{Context, Interrupt, LocalState, Unknown},
    upgrade_plan::{self, Finding, FindingReason, MAX_ROUNDS, Scope, UpgradePlan, WarningReason},
};
use sluice_crds::foreign::ClusterClass;

use self::{not_made::NotMade, objects::Objects, output::Document};
use crate::{
    arguments::{OutputFormat, PlanArgs},
    connection::Trouble,
    management,
    reader::{Reader, one},
    terminal::{Terminal, escaped, print},
};

/// A gate will hold the upgrade, or Cluster API refuses it.
const BLOCKED: u8 = 3;

/// Name of the comparison of values with schemas.
const VALUES: &str = "values";

/// Name of the checks of the workload cluster.
const WORKLOAD: &str = "workload";

pub(super) async fn plan(asked: &PlanArgs, terminal: &Terminal) -> Result<ExitCode, Trouble> {
    let (client, of_context) = management::client(&asked.management).await?;
    let namespace = asked.namespace.as_deref().unwrap_or(&of_context);
    let mut reader = Reader::new(client);
    let (plan, not_made) = planned(&mut reader, namespace, asked).await?;
    let document = Document::of((namespace, asked.name.as_str()), &plan, &not_made);
    match asked.output {
        OutputFormat::Table => {
            for line in document.steps(terminal) {
                terminal.line(&line)?;
            }
            // A message is more useful than an aligned line.
            for line in document.findings(terminal) {
                print(&line)?;
            }
        }
        OutputFormat::Json => print(&escaped(&document.json()?))?,
        OutputFormat::Yaml => print(escaped(&document.yaml()?).trim_end())?,
    }
    Ok(if plan.is_blocked() {
        ExitCode::from(BLOCKED)
    } else {
        ExitCode::SUCCESS
    })
}

/// Returns the plan with all findings, and the checks that were not made.
async fn planned(
    reader: &mut Reader,
    namespace: &str,
    asked: &PlanArgs,
) -> Result<(UpgradePlan, Vec<NotMade>), Trouble> {
    let objects = objects::read(reader, namespace, asked).await?;
    let mut not_made = Vec::new();
    let mut plan = of_management(reader, &objects, asked.values, &mut not_made).await?;
    plan.findings.extend(objects.assumed);
    let not_in_class = FindingReason::Warning(WarningReason::VersionNotInClass);
    if plan.findings.iter().any(|finding| finding.reason == not_in_class) {
        let topology = &objects.facts.topology;
        // Only a suggestion.
        let classes = reader.list::<ClusterClass>(Some(topology.class_namespace().unwrap_or(namespace)), "");
        let classes = classes.await.unwrap_or_default();
        plan.name_class(classes.iter().map(AsRef::as_ref));
    }
    if let Some(Unknown::Unreadable(hold)) = &objects.facts.unknown {
        add(&mut plan, hold);
    }
    let of_workload = if asked.workload {
        let client = client::of_workload(reader, namespace, &asked.name).await;
        client.map_err(|why| NotMade {
            check: WORKLOAD,
            why: one(&why),
        })
    } else {
        Err(NotMade::not_asked(WORKLOAD, "--workload"))
    };
    let of_workload = match of_workload {
        Ok(client) => {
            let (found, missing) = workload::read(&client).await;
            let findings = upgrade_plan::workload::findings(&found, &plan.hops);
            plan.findings.extend(findings);
            not_made.extend(missing);
            Ok(Reader::new(client))
        }
        Err(missing) => {
            let why = missing.why.clone();
            not_made.push(missing);
            Err(why)
        }
    };
    let of_workload = of_workload.as_ref().map_err(String::as_str);
    not_made.extend(ignored::remove(&mut plan, reader, of_workload).await);
    Ok((plan, not_made))
}

/// Adds the hold of a Cluster of which too little is known.
fn add(plan: &mut UpgradePlan, hold: &Hold) {
    let reason = FindingReason::Gate(hold.reason);
    if plan.findings.iter().all(|finding| finding.reason != reason) {
        plan.findings.insert(0, Finding::of_hold(None, hold.clone()));
    }
}

/// Returns the plan from objects of the management cluster. Values that cannot be read are not compared.
async fn of_management(
    reader: &Reader,
    objects: &Objects,
    values: bool,
    not_made: &mut Vec<NotMade>,
) -> Result<UpgradePlan, Trouble> {
    let local = LocalState::default();
    let began = Clock {
        now: Timestamp::now(),
        instant: Instant::now(),
    };
    let mut context = Context::new(&objects.facts, &local, began);
    let mut scope = Scope {
        schemas: true,
        values: false,
    };
    let plan = rounds(reader, objects, &mut context, scope).await;
    let plan = plan.map_err(Trouble::NotAnswered)?;
    if !values {
        not_made.push(NotMade::not_asked(VALUES, "--values"));
        return Ok(plan);
    }
    // These rounds read only what values depend on.
    scope.values = true;
    let with_values = rounds(reader, objects, &mut context, scope).await;
    Ok(with_values.unwrap_or_else(|why| {
        not_made.push(NotMade { check: VALUES, why });
        plan
    }))
}

/// Reads what a plan asks for, and returns the plan. A read of values that the user may not make ends it: Sluice may be permitted to make
/// it, so it is no finding.
///
/// # Errors
/// One line that says why there is no plan.
async fn rounds(
    reader: &Reader,
    objects: &Objects,
    context: &mut Context<'_>,
    scope: Scope,
) -> Result<UpgradePlan, String> {
    for _ in 0..MAX_ROUNDS {
        let reads = match upgrade_plan::plan(context, scope) {
            Ok(plan) => return Ok(plan),
            Err(Interrupt::Need(reads)) => reads,
            Err(Interrupt::Failed(failure)) => return Err(one(&failure.text)),
            Err(Interrupt::Held(hold)) => return Err(one(&hold.to_string())),
            Err(Interrupt::Write(_)) => return Err("a plan writes nothing".to_owned()),
        };
        let reads = context.unanswered(reads).map_err(|error| error.to_string())?;
        for read in reads {
            let answer = reader.answer(&objects.facts, &objects.snapshot, &read).await;
            if let ReadResult::Failed(failure) = &answer
                && scope.values
                && matches!(failure.code, Some(401 | 403))
            {
                return Err(one(&failure.text));
            }
            context.record_answer(read, answer);
        }
    }
    Err(format!("no plan within {MAX_ROUNDS} rounds"))
}

#[cfg(test)]
mod tests;
