// A table of what Cluster API itself decides: whether control planes, MachineDeployments and MachinePools of some versions are being
// upgraded.
//
// The decisions are those of internal packages of Cluster API, so the harness builds this program as module
// sigs.k8s.io/cluster-api/harness, with the requirements of capi111 to capi114, and with status114.go for 1.14 or status111.go for an
// earlier release. Usage: upgrading > TABLE. Each line is a row.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/blang/semver/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/internal/contract"
	"sigs.k8s.io/cluster-api/internal/topology/check"
	"sigs.k8s.io/cluster-api/util/version"
)

// Desired and reported versions.
var pairs = [][2]string{
	{"v1.35.4", "v1.35.4"},
	// Suffixes that the desired version lacks.
	{"v1.35.4", "v1.35.4+k0s"},
	{"v1.35.4", "v1.35.4+k3s1"},
	{"v1.35.4", "v1.35.4+rke2r1"},
	{"v1.35.4", "v1.35.4+vmware.1"},
	{"v1.35.4", "v1.35.4-eks-abc"},
	{"v1.35.4", "v1.35.4-gke.100"},
	// Suffixes that the reported version lacks.
	{"v1.35.4+k3s1", "v1.35.4"},
	{"v1.35.4+vmware.1", "v1.35.4"},
	{"v1.35.4-eks-abc", "v1.35.4"},
	{"v1.35.4-eks-abc", "v1.35.4-eks-abc"},
	{"v1.35.4+k0s.0", "v1.35.4+k0s"},
	{"v1.35.4+k0s", "v1.35.4+k0s.0"},
	// Builds of one release.
	{"v1.35.4+vmware.1", "v1.35.4+vmware.1"},
	{"v1.35.4+vmware.1", "v1.35.4+vmware.2"},
	{"v1.35.4+vmware.2", "v1.35.4+vmware.1"},
	{"v1.35.4+vmware.9", "v1.35.4+vmware.10"},
	{"v1.35.4+vmware.10", "v1.35.4+vmware.9"},
	{"v1.35.4+vmware.1", "v1.35.4+vmware.01"},
	{"v1.35.4+vmware.1-fips.1", "v1.35.4+vmware.1-tkg.1"},
	{"v1.35.4+k3s1", "v1.35.4+k3s2"},
	{"v1.35.4+k3s2", "v1.35.4+k3s1"},
	{"v1.35.4+k3s1", "v1.35.4+rke2r1"},
	{"v1.35.4+1", "v1.35.4+k3s1"},
	{"v1.35.4+k3s1", "v1.35.4+1"},
	{"v1.35.4+99999999999999999998", "v1.35.4+99999999999999999999"},
	{"v1.35.4+99999999999999999999", "v1.35.4+99999999999999999998"},
	// Releases.
	{"v1.35.4", "v1.35.3"},
	{"v1.35.4", "v1.35.5"},
	{"v1.35.4", "v1.34.9"},
	{"v1.35.4", "v1.36.3"},
	{"v1.35.4", "v2.0.0"},
	{"v1.35.4+vmware.1", "v1.35.3+vmware.9"},
	{"v1.35.4+vmware.9", "v1.35.5+vmware.1"},
	{"v1.35.40", "v1.35.4"},
	{"v1.36.0-rc.1", "v1.36.0"},
	{"v1.36.0", "v1.36.0-rc.1"},
	{"v1.36.0-rc.1", "v1.36.0-rc.2"},
	{"v1.36.0-rc.2", "v1.36.0-rc.1"},
	// Other spellings.
	{"1.35.4", "v1.35.4"},
	{"v1.35.4", "1.35.4"},
	{"v1.35", "v1.35.4"},
	{"v1.35.4", "v1.35"},
	{"v1.35", "v1.35.0+k3s1"},
	{"v1.35+k3s1", "v1.35.0+k3s1"},
	{"v1.035.4", "v1.35.4"},
	{"v1.35.04+k3s1", "v1.35.4+k3s1"},
	{"v00.1.2", "v0.1.2"},
	{"v1.35.4", "latest"},
	{"latest", "latest"},
	{"vv1.35.4", "v1.35.4"},
	{"v1.35.4", "v1.35.4+"},
	{"v1.35.4", "v1.35.4-rc.01"},
}

// Desired and reported versions of workers, which Cluster API compares byte by byte.
var compared = [][2]string{
	{"v1.35.4", "v1.35.4"},
	{"v1.35.4", "v1.35.4+k0s"},
	{"v1.35.4", "v1.35.4+k3s1"},
	{"v1.35.4", "v1.35.4-eks-abc"},
	{"v1.35.4+vmware.1", "v1.35.4"},
	{"v1.35.4+vmware.1", "v1.35.4+vmware.1"},
	{"v1.35.4+vmware.1", "v1.35.4+vmware.2"},
	{"v1.35.4+vmware.2", "v1.35.4+vmware.1"},
	{"v1.35.4+k0s.0", "v1.35.4+k0s"},
	{"v1.35.4", "v1.35.3"},
	{"v1.35.4", "v1.35.5"},
	{"v1.35.4", "v1.34.9"},
	{"v1.35.4", "v1.36.3"},
	{"v1.35.4", "1.35.4"},
	{"v1.35.4", "latest"},
}

// Row of the table.
type row struct {
	Kind    string `json:"kind"`
	Desired string `json:"desired"`
	// Machines of a MachineDeployment.
	Machines []machine `json:"machines,omitempty"`
	// Kubelet versions of the Nodes of a MachinePool, and whether it has Machines.
	Nodes       []string `json:"nodes,omitempty"`
	HasMachines bool     `json:"hasMachines,omitempty"`
	// Status of the object, as Cluster API or the provider reports it.
	Status any    `json:"status"`
	State  string `json:"state"`
}

// Machine of a MachineDeployment: its version, and that of its kubelet.
type machine struct {
	Version string `json:"version"`
	Kubelet string `json:"kubelet,omitempty"`
}

const (
	provisioning = "Provisioning"
	upgrading    = "Upgrading"
	finished     = "Finished"
	failed       = "Error"
)

func stateOf(isUpgrading bool, err error) string {
	switch {
	case err != nil:
		return failed
	case isUpgrading:
		return upgrading
	default:
		return finished
	}
}

func main() {
	log.SetFlags(0)
	out := bufio.NewWriter(os.Stdout)
	write := func(r row) {
		line, err := json.Marshal(r)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Fprintf(out, "%s\n", line)
	}
	writeControlPlanes(write)
	for _, pair := range compared {
		for _, machines := range machinesOf(pair[0], pair[1]) {
			write(machineDeployment(pair[0], machines))
		}
	}
	for _, pair := range compared {
		for _, nodes := range [][]string{{pair[1]}, {pair[0], pair[1]}} {
			for _, hasMachines := range []bool{false, true} {
				write(machinePool(pair[0], nodes, hasMachines))
			}
		}
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}

func writeControlPlanes(write func(row)) {
	write(controlPlane("v1.35.4", map[string]any{}))
	write(controlPlane("v1.35.4", map[string]any{"version": ""}))
	for _, pair := range pairs {
		desired, reported := pair[0], pair[1]
		write(controlPlane(desired, map[string]any{"version": reported}))
		write(controlPlane(desired, map[string]any{"versions": versions(reported)}))
		write(controlPlane(desired, map[string]any{"version": reported, "versions": versions(reported)}))
		for _, both := range [][2]string{{reported, desired}, {desired, reported}} {
			if isOrdered(both[0], both[1]) {
				write(controlPlane(desired, map[string]any{"version": both[0], "versions": versions(both[0], both[1])}))
			}
		}
	}
}

// Providers report versions from the oldest to the newest; Cluster API 1.14 rejects any other order.
func isOrdered(first, second string) bool {
	one, err := semver.ParseTolerant(first)
	if err != nil {
		return false
	}
	other, err := semver.ParseTolerant(second)
	return err == nil && first != second && version.Compare(other, one, version.WithBuildTags()) >= 0
}

func versions(all ...string) []any {
	list := []any{}
	for _, version := range all {
		list = append(list, map[string]any{"version": version, "replicas": int64(1)})
	}
	return list
}

// The topology controller asks first whether the control plane is being provisioned.
func controlPlane(desired string, status map[string]any) row {
	object := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"version": desired}, "status": status,
	}}
	state := provisioning
	if isProvisioning, err := contract.ControlPlane().IsProvisioning(object); err != nil {
		state = failed
	} else if !isProvisioning {
		state = stateOf(contract.ControlPlane().IsUpgrading(object))
	}
	return row{Kind: "ControlPlane", Desired: desired, Status: status, State: state}
}

// Machines of a MachineDeployment on the way from one version to another.
func machinesOf(desired, reported string) [][]machine {
	all := [][]machine{{{desired, reported}}}
	if desired == reported {
		return append(all, []machine{{desired, ""}}, []machine{})
	}
	return append(all,
		[]machine{{reported, reported}},
		[]machine{{reported, desired}},
		[]machine{{reported, ""}},
		[]machine{{desired, desired}, {desired, reported}},
		[]machine{{desired, desired}, {reported, reported}},
	)
}

const (
	name      = "md-0"
	namespace = "default"
)

func machineDeployment(desired string, of []machine) row {
	labels := map[string]string{clusterv1.MachineDeploymentNameLabel: name}
	md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	md.Spec.Selector.MatchLabels = labels
	md.Spec.Template.Spec.Version = desired
	machines := []*clusterv1.Machine{}
	for index, each := range of {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%d", name, index), Namespace: namespace, Labels: labels,
		}}
		m.Spec.Version = each.Version
		if each.Kubelet != "" {
			m.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: each.Kubelet}
		}
		machines = append(machines, m)
	}
	reportDeployment(md, machines)
	state := stateOf(check.IsMachineDeploymentUpgrading(context.Background(), reader{machines: machines}, md))
	return row{
		Kind: "MachineDeployment", Desired: desired, Machines: of, Status: deploymentStatus(md), State: state,
	}
}

func machinePool(desired string, kubelets []string, hasMachines bool) row {
	replicas := int32(len(kubelets))
	mp := &clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{Name: "mp-0", Namespace: namespace}}
	mp.Spec.Replicas = &replicas
	mp.Spec.Template.Spec.Version = desired
	mp.Status.Replicas = &replicas
	nodes := map[string]*corev1.Node{}
	machines := []*clusterv1.Machine{}
	for index, kubelet := range kubelets {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("mp-0-%d", index)}}
		node.Status.NodeInfo.KubeletVersion = kubelet
		nodes[node.Name] = node
		mp.Status.NodeRefs = append(mp.Status.NodeRefs, corev1.ObjectReference{Name: node.Name})
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Namespace: namespace}}
		// The MachinePool controller copies it from the Node.
		m.Spec.Version = kubelet
		m.Status.NodeInfo = &node.Status.NodeInfo
		if hasMachines {
			machines = append(machines, m)
		}
	}
	reportPool(mp, hasMachines, machines, nodes)
	state := stateOf(check.IsMachinePoolUpgrading(context.Background(), reader{nodes: nodes}, mp))
	return row{
		Kind: "MachinePool", Desired: desired, Nodes: kubelets, HasMachines: hasMachines, Status: poolStatus(mp), State: state,
	}
}

// What Sluice reads of the status of a worker object.
type status struct {
	Replicas         *int32 `json:"replicas,omitempty"`
	UpToDateReplicas *int32 `json:"upToDateReplicas,omitempty"`
	Versions         any    `json:"versions,omitempty"`
}

// Reader of the machines of a MachineDeployment, or of the Nodes of a MachinePool.
type reader struct {
	client.Reader
	machines []*clusterv1.Machine
	nodes    map[string]*corev1.Node
}

func (r reader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	machines := list.(*clusterv1.MachineList)
	for _, m := range r.machines {
		machines.Items = append(machines.Items, *m)
	}
	return nil
}

func (r reader) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	node, found := r.nodes[key.Name]
	if !found {
		return fmt.Errorf("no Node %s", key.Name)
	}
	node.DeepCopyInto(object.(*corev1.Node))
	return nil
}
