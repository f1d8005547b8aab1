// Informers over all that Sluice watches on a management cluster, as a controller in Go has them: client-go's shared informers over
// unstructured objects, with a transform that drops managedFields.
//
// Usage: informers KUBECONFIG READY. It writes the file READY when every informer is filled, and then waits.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/clientcmd"
)

var watched = []schema.GroupVersionResource{
	{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "clusters"},
	{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "clusterclasses"},
	{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "machinedeployments"},
	{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "machinepools"},
	{Group: "harness.test", Version: "v1beta1", Resource: "harnesscontrolplanes"},
	{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Resource: "vsphereclusters"},
	{Group: "run.tanzu.vmware.com", Version: "v1alpha3", Resource: "clusterbootstraps"},
	{Group: "run.tanzu.vmware.com", Version: "v1alpha3", Resource: "clusterbootstraptemplates"},
	{Group: "run.tanzu.vmware.com", Version: "v1alpha3", Resource: "tanzukubernetesreleases"},
	{Group: "cni.tanzu.vmware.com", Version: "v1alpha1", Resource: "antreaconfigs"},
	{Group: "cpi.tanzu.vmware.com", Version: "v1alpha1", Resource: "vspherecpiconfigs"},
	{Group: "data.packaging.carvel.dev", Version: "v1alpha1", Resource: "packages"},
	{Group: "packaging.carvel.dev", Version: "v1alpha1", Resource: "packageinstalls"},
	{Group: "kappctrl.k14s.io", Version: "v1alpha1", Resource: "apps"},
}

func withoutManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

func run(kubeconfig, ready string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 100, 200
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, metav1.NamespaceAll, nil)
	for _, resource := range watched {
		if err := factory.ForResource(resource).Informer().SetTransform(withoutManagedFields); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: informers KUBECONFIG READY")
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}
