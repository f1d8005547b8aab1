package main

import (
	corev1 "k8s.io/api/core/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// A machine is up to date if the template of its MachineSet is that of the MachineDeployment: setUpToDateCondition in
// internal/controllers/machine, and newMachineUpToDateCondition in internal/controllers/machineset of 1.11. Building these packages
// takes minutes.
func reportDeployment(md *clusterv1.MachineDeployment, machines []*clusterv1.Machine) {
	all, upToDate := int32(len(machines)), int32(0)
	for _, m := range machines {
		if m.Spec.Version == md.Spec.Template.Spec.Version {
			upToDate++
		}
	}
	md.Status.Replicas, md.Status.UpToDateReplicas = &all, &upToDate
}

// As setReplicas in the package of the MachinePool controller does. Only the Machines of a MachineDeployment have condition UpToDate.
func reportPool(mp *clusterv1.MachinePool, hasMachines bool, _ []*clusterv1.Machine, _ map[string]*corev1.Node) {
	mp.Status.UpToDateReplicas = mp.Spec.Replicas
	if hasMachines {
		mp.Status.UpToDateReplicas = new(int32)
	}
}

func deploymentStatus(md *clusterv1.MachineDeployment) status {
	return status{md.Status.Replicas, md.Status.UpToDateReplicas, nil}
}

func poolStatus(mp *clusterv1.MachinePool) status {
	return status{mp.Status.Replicas, mp.Status.UpToDateReplicas, nil}
}
