//! Scenarios on the real stack: real Cluster API, real API servers, real kapp-controllers, the release binary of Sluice.

mod admission;
mod applied;
mod at_rest;
mod back_and_forth;
mod bootstrap_edited;
mod broken_package;
mod chained;
mod chained_images;
mod common;
mod configured;
mod create;
mod created_again;
mod cut_off;
mod day2_values;
mod deaths;
mod deletion;
mod drift;
mod etcd_restored;
mod examples;
mod false_ready;
mod frozen_leader;
mod gate_caaph;
mod gate_edits;
mod gate_flux;
mod gates_only;
mod gitops;
mod harness_delivers;
mod harness_installs;
mod held_cause;
mod hostile_kind;
mod hostile_memory;
mod image;
mod killed;
mod leader_lost;
mod legacy;
mod management_package;
mod minor_upgrade;
mod missing_things;
mod moved;
mod needed_things;
mod not_in_force;
mod observer_catches;
mod older_cluster_api;
mod on_its_way;
mod order_of_edits;
mod overrides;
mod package_edited;
mod package_range;
mod package_stopped;
mod partial;
mod paused;
mod phase;
mod plain_package;
mod plan;
mod planned_by_sluice;
mod pools;
mod provided;
mod release_set;
mod releases;
mod removed_api;
mod resolve;
mod resync;
mod rolled_back;
mod same_kubernetes;
mod server_replaced;
mod shown;
mod stage_zero;
mod started_without;
mod status;
mod takeover;
mod third_party;
mod tkr_packages;
mod twenty;
mod undecodable;
mod unmanaged;
mod update_sluice;
mod workers;
mod workload_away;

use std::process::ExitCode;

#[expect(clippy::too_many_lines, reason = "the list of all scenarios")]
fn main() -> ExitCode {
    sluice_tests::scenario::main(vec![
        // The longest one first, so that others run beside it.
        false_ready::scenario(),
        harness_installs::scenario(),
        harness_delivers::scenario(),
        hostile_kind::scenario(),
        hostile_memory::scenario(),
        image::scenario(),
        undecodable::scenario(),
        observer_catches::scenario(),
        create::scenario(),
        configured::scenario(),
        third_party::scenario(),
        examples::scenario(),
        provided::from_template(),
        provided::preconfigured(),
        provided::embedded(),
        day2_values::scenario(),
        minor_upgrade::scenario(),
        older_cluster_api::v1_13(),
        older_cluster_api::v1_12(),
        older_cluster_api::v1_11(),
        admission::bootstrap(),
        admission::template(),
        admission::down(),
        partial::partial(),
        partial::wildcard(),
        partial::custom(),
        partial::unmanaged_cni(),
        gitops::scenario(),
        gitops::cluster_first(),
        releases::compatibility(),
        releases::updates_available(),
        management_package::scenario(),
        tkr_packages::installed(),
        tkr_packages::removed(),
        tkr_packages::broken(),
        broken_package::scenario(),
        removed_api::scenario(),
        order_of_edits::scenario(),
        release_set::merge_that_fails(),
        release_set::old_manifest(),
        release_set::kept_package(),
        missing_things::release(),
        missing_things::kubeconfig(),
        missing_things::hooks(),
        workload_away::silent(),
        workload_away::swapped(),
        workload_away::frozen(),
        stage_zero::scenario(),
        stage_zero::restarted(),
        stage_zero::installer_restarted(),
        moved::scenario(),
        bootstrap_edited::edited(),
        bootstrap_edited::deleted(),
        paused::scenario(),
        phase::scenario(),
        back_and_forth::scenario(),
        deletion::scenario(),
        created_again::scenario(),
        workers::scenario(),
        pools::scenario(),
        resolve::prefix(),
        resolve::pools(),
        resolve::refused(),
        resolve::down(),
        same_kubernetes::scenario(),
        resync::scenario(),
        shown::columns(),
        shown::deadline(),
        shown::history(),
        shown::ungated(),
        unmanaged::scenario(),
        legacy::paused(),
        takeover::rest(),
        takeover::paused(),
        takeover::delete(),
        takeover::management(),
        takeover::supervisor(),
        legacy::labelled(),
        status::stream(),
        status::denied(),
        cut_off::scenario(),
        chained::scenario(),
        chained::workers_too(),
        chained_images::listed(),
        chained_images::planned(),
        planned_by_sluice::scenario(),
        planned_by_sluice::v1_13(),
        killed::killed(),
        killed::outage(),
        package_stopped::stopped(),
        package_stopped::values(),
        package_edited::held_back(),
        package_edited::on_the_workload(),
        package_range::scenario(),
        plan::agreement(),
        plan::gitops(),
        plain_package::scenario(),
        applied::interrupted(),
        deletion::of_namespace(),
        server_replaced::scenario(),
        gates_only::scenario(),
        gate_caaph::scenario(),
        gate_flux::scenario(),
        gate_edits::scenario(),
        needed_things::scenario(),
        frozen_leader::scenario(),
        rolled_back::scenario(),
        overrides::scenario(),
        held_cause::scenario(),
        not_in_force::scenario(),
        etcd_restored::scenario(),
        leader_lost::scenario(),
        started_without::scenario(),
        deaths::scenario(),
        drift::scenario(),
        twenty::scenario(),
        update_sluice::scenario(),
    ])
}
