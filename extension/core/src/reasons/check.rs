//! Reasons of an unproven check of an UpgradeGate.

use super::table::{act, held, wait};

held! {
    /// Reason why a check of an UpgradeGate has no proof.
    CheckReason:
    "One check" {
        /// The object of the check does not exist, or the HelmChartProxy has no HelmReleaseProxy for the Cluster, or the Kustomization has
        /// no source.
        ObjectNotFound("check"): "checked object not found", Blocked, Never,
            act(
                "create the object that the message names, or correct `object` of the check; for a missing HelmReleaseProxy check the \
                 selector of the HelmChartProxy and `detail`, for a missing source `spec.sourceRef` of the Kustomization",
            ),
        /// The object of the check is being deleted.
        ObjectDeleting("check"): "checked object terminating", Blocked, Never,
            act("find the client that deletes it"),
        /// The controller of the object, of its HelmReleaseProxy or of its source has not observed the latest generation. Or a field has
        /// another type than its API declares, or the API server answers a read of the kind with an error; the message names it.
        NotObserved("check"): "generation not observed", Progress, Never,
            wait(
                "the time that the controller of the object takes to apply it",
                "check that this controller runs, and its log; correct the field, or the server of the kind, that the message names",
            ),
        /// The object, or the source of a Kustomization, has another version than the row of the UpgradeGate for this Kubernetes minor
        /// version, or the object has no container of the name that the check gives.
        NotAtVersion("check"): "not at the version of the gate", Blocked, Never,
            act(
                "change the add-on to the version that the message names; if a newer version is intended, add a row with it to the \
                 UpgradeGate. `detail` has the condition of a delivery system that does not get to the version",
            ),
        /// The object, its HelmReleaseProxy or its source is suspended or paused, or a HelmChartProxy has `reconcileStrategy: InstallOnce`.
        DeliverySuspended("check"): "delivery suspended", Pause, Never,
            act("resume the object that the message names; check another object for a chart that is installed once"),
        /// The delivery system is still applying the version, the values or the revision of the source.
        DeliveryInProgress("check"): "delivery in progress", Progress, Never,
            wait(
                "the time that the chart or the manifests take to deploy",
                "check `detail`, and the log of the delivery controller",
            ),
        /// The delivery system failed to apply the version, or Flux rolled it back, or the source of a Kustomization is stalled.
        DeliveryFailed("check"): "delivery failed", Retries, Never,
            act("check `detail` and the conditions of the object; a corrected chart, value, manifest or source releases it"),
        /// Not all Pods of the workload run its latest template, or not all of them are available, or it has no Pod.
        NotRolledOut("check"): "rollout incomplete", Progress, Never,
            wait(
                "the time that the replacement of its Pods takes",
                "check its Pods; where the message names `OnDelete` or a partition, delete the Pods or change the update strategy",
            ),
        /// The Job is not complete, or it failed.
        NotComplete("check"): "Job not complete", Progress, Never,
            wait("the time that the Job takes", "check its Pods; delete a failed Job and create it again"),
        /// A CustomResourceDefinition does not serve the version, or the API server has not accepted it.
        NotServed("check"): "version not served by the definition", Blocked, Never,
            act("apply the definition that serves the version; where the message names a condition, resolve its cause in `detail`"),
        /// The object belongs to another Cluster, another HelmChartProxy or another namespace: for example, `spec.kubeConfig` of a
        /// HelmRelease or Kustomization does not name Secret `<cluster>-kubeconfig`, or a source is in another namespace.
        BelongsElsewhere("check"): "belongs to another Cluster or owner", Blocked, Never,
            act("correct `object` of the check, or the field, owner or label that the message names"),
        /// Several HelmReleaseProxies of one HelmChartProxy have the label of the Cluster. CAAPH updates none of them.
        SeveralMatches("check"): "HelmReleaseProxy ambiguous", Blocked, Never,
            act("delete those that the HelmChartProxy does not need"),
        /// The API server does not serve the kind of the check, of its HelmReleaseProxies or of its source.
        KindNotServed("check"): "kind of the check not served", Blocked, Never,
            act("install its definition, or correct `apiVersion` and `kind` of the check. No restart is needed"),
        /// Sluice may not read the kind of the check, of its HelmReleaseProxies or of its source.
        KindForbidden("check"): "kind of the check forbidden", Blocked, Never,
            act("add the rule that the message names. No restart is needed"),
        /// The object is larger than Sluice reads.
        ObjectTooLarge("check"): "checked object too large", Blocked, Never, act("check another object"),
        /// The expression of the check is not `true` for the object.
        ExpressionFalse("check"): "expression is not true", Progress, Never,
            wait("the time that the add-on takes", "compare the object with `cel` of the check"),
        /// The expression of the check fails for the object: a field is missing, or the result is not a boolean.
        ExpressionFailed("check"): "CEL expression fails", Blocked, Never,
            act("correct `cel` of the check, for example with `has()` or an optional field"),
        /// The expression of the check would take too many steps for the object, or all expressions of the Cluster would take too many
        /// together.
        ExpressionTooCostly("check"): "expression too costly", Blocked, Never,
            act("shorten `cel` of the check, or check a smaller object; `detail` names the limit"),
    }
}
