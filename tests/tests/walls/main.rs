//! A failing Cluster does not affect others. Of a hundred Clusters, some have a workload API server with one fault after the other. All
//! others take as long as without faults in the same run.

mod case;
mod figures;
mod hundred;
mod memory;

use anyhow::{Context as _, Result, ensure};
use sluice_tests::extension::{Replica, Settings};
use sluice_tests::fault_server::Fault;
use sluice_tests::processes::notice;
use sluice_tests::provider;
use sluice_tests::scenario::sluice_definitions;
use sluice_tests::stack::{Options, Stack};

use case::{Case, Judge};
use hundred::Hundred;

/// Number of concurrent reconciles. Few, so that the affected Clusters can take all slots.
const SLOTS: usize = 4;

/// Sets another number. The same Clusters are affected, and the absolute limits are the same.
const CONCURRENCY: &str = "WALLS_CONCURRENCY";

/// Each fault on one Cluster, or on as many as there are slots, of which they may have half for long. Those for each time are those by
/// which the code failed most clearly before it had timeouts and limits, see docs/reliability.md.
const CASES: [Case; 16] = [
    Case::one(Fault::Silent),
    Case::every_slot(Fault::Silent).each_time(),
    Case::every_slot(Fault::Late).each_time(),
    Case::every_slot(Fault::Drips).each_time(),
    Case::one(Fault::Endless),
    Case::every_slot(Fault::TooManyRequests),
    Case::every_slot(Fault::Unavailable),
    Case::every_slot(Fault::Resets),
    Case::one(Fault::HalfAnswers),
    Case::one(Fault::BillionBytes).each_time(),
    Case::one(Fault::EndlessPages).each_time(),
    Case::one(Fault::EmptyPages),
    Case::one(Fault::MuteWatch),
    Case::one(Fault::ExpiredWatch),
    Case::one(Fault::ReorderedWatch),
    Case::one(Fault::EndlessWatch).each_time(),
];

/// Names the cases: `all`, or those of some faults, `Silent,Late`. Without it those for each time are run.
const CHOSEN: &str = "WALLS";

#[tokio::test(flavor = "multi_thread")]
async fn one_clusters_trouble_stays_its_own() -> Result<()> {
    let definitions = sluice_definitions()?.into_iter().chain(provider::definitions());
    let stack = Stack::start(Options::new("walls").crds(definitions)).await?;
    let mut settings = Settings::new("sluice");
    let concurrency = match std::env::var(CONCURRENCY) {
        Ok(number) => number
            .parse()
            .with_context(|| format!("{CONCURRENCY}={number}"))?,
        Err(_) => SLOTS,
    };
    settings.arguments = vec![format!("--cluster-concurrency={concurrency}")];
    let replica = Replica::start(&stack, settings).await?;
    let cases: Vec<Case> = CASES.into_iter().filter(is_chosen).collect();
    let hundred = Hundred::make(&stack, &cases).await?;

    let mut judge = Judge::new(&stack, &replica, hundred, concurrency).await?;
    for case in &cases {
        judge.judge(case).await?;
    }
    judge.all_recover().await?;
    for complaint in judge.complaints() {
        notice(complaint);
    }
    ensure!(judge.complaints().is_empty(), "{}", judge.complaints().join("\n"));

    stack.check()?;
    stack.stop().await
}

fn is_chosen(case: &Case) -> bool {
    match std::env::var(CHOSEN).as_deref() {
        Err(_) => case.each_time,
        Ok("all") => true,
        Ok(some) => some
            .split(',')
            .any(|each| each.trim() == format!("{:?}", case.fault)),
    }
}
