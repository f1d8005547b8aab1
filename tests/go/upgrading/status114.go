package main

import (
	"context"
	// For linkname.
	_ "unsafe"

	corev1 "k8s.io/api/core/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	_ "sigs.k8s.io/cluster-api/core/reconcilers/machine"
	_ "sigs.k8s.io/cluster-api/core/reconcilers/machinedeployment"
	_ "sigs.k8s.io/cluster-api/core/reconcilers/machinepool"
	_ "sigs.k8s.io/cluster-api/core/reconcilers/machineset"
)

//go:linkname setUpToDateCondition sigs.k8s.io/cluster-api/core/reconcilers/machine.setUpToDateCondition
func setUpToDateCondition(context.Context, *clusterv1.Machine, *clusterv1.MachineSet, *clusterv1.MachineDeployment)

//go:linkname setReplicasOfSet sigs.k8s.io/cluster-api/core/reconcilers/machineset.setReplicas
func setReplicasOfSet(context.Context, *clusterv1.MachineSet, []*clusterv1.Machine, bool)

//go:linkname setReplicasOfDeployment sigs.k8s.io/cluster-api/core/reconcilers/machinedeployment.setReplicas
func setReplicasOfDeployment(*clusterv1.MachineDeployment, []*clusterv1.MachineSet)

//go:linkname setReplicasOfPool sigs.k8s.io/cluster-api/core/reconcilers/machinepool.setReplicas
func setReplicasOfPool(*clusterv1.MachinePool, bool, []*clusterv1.Machine, map[string]*corev1.Node)

// The status is that of Cluster API's own functions, too. There is a MachineSet for each version of the machines.
func reportDeployment(md *clusterv1.MachineDeployment, machines []*clusterv1.Machine) {
	ctx := context.Background()
	wanted := []string{md.Spec.Template.Spec.Version}
	of := map[string][]*clusterv1.Machine{}
	for _, m := range machines {
		if _, known := of[m.Spec.Version]; !known && m.Spec.Version != wanted[0] {
			wanted = append(wanted, m.Spec.Version)
		}
		of[m.Spec.Version] = append(of[m.Spec.Version], m)
	}
	sets := []*clusterv1.MachineSet{}
	for _, version := range wanted {
		ms := &clusterv1.MachineSet{}
		ms.Spec.Template.Spec.Version = version
		for _, m := range of[version] {
			setUpToDateCondition(ctx, m, ms, md)
		}
		setReplicasOfSet(ctx, ms, of[version], true)
		sets = append(sets, ms)
	}
	setReplicasOfDeployment(md, sets)
}

func reportPool(mp *clusterv1.MachinePool, hasMachines bool, machines []*clusterv1.Machine, nodes map[string]*corev1.Node) {
	setReplicasOfPool(mp, hasMachines, machines, nodes)
}

func deploymentStatus(md *clusterv1.MachineDeployment) status {
	return status{md.Status.Replicas, md.Status.UpToDateReplicas, listed(md.Status.Versions)}
}

func poolStatus(mp *clusterv1.MachinePool) status {
	return status{mp.Status.Replicas, mp.Status.UpToDateReplicas, listed(mp.Status.Versions)}
}

// Nothing instead of an empty list, which the API server does not store.
func listed(versions []clusterv1.StatusVersion) any {
	if len(versions) == 0 {
		return nil
	}
	return versions
}
