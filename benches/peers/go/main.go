// A runtime extension on Cluster API's own server that answers every hook from a map in memory: the least that an extension in Go can
// do. It is what Sluice is compared with.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	hooks "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/exp/runtime/server"
	ctrl "sigs.k8s.io/controller-runtime"
)

const retryAfterSeconds = 1

// What each Cluster waits for, by namespace and name.
var waiting sync.Map

func waits(namespace, name string) (string, bool) {
	found, ok := waiting.Load(namespace + "/" + name)
	if !ok {
		return "", false
	}
	return found.(string), true
}

// Holds a Cluster that waits for something, and lets any other one go on.
func answer(cluster metav1.ObjectMeta, response hooks.RetryResponseObject) {
	response.SetStatus(hooks.ResponseStatusSuccess)
	if message, ok := waits(cluster.Namespace, cluster.Name); ok {
		response.SetMessage(message)
		response.SetRetryAfterSeconds(retryAfterSeconds)
	}
}

func handlers() []server.ExtensionHandler {
	return []server.ExtensionHandler{
		{Name: "before-cluster-create", Hook: hooks.BeforeClusterCreate,
			HandlerFunc: func(_ context.Context, request *hooks.BeforeClusterCreateRequest, response *hooks.BeforeClusterCreateResponse) {
				answer(request.Cluster.ObjectMeta, response)
			}},
		{Name: "before-cluster-upgrade", Hook: hooks.BeforeClusterUpgrade,
			HandlerFunc: func(_ context.Context, request *hooks.BeforeClusterUpgradeRequest, response *hooks.BeforeClusterUpgradeResponse) {
				answer(request.Cluster.ObjectMeta, response)
			}},
		{Name: "after-control-plane-upgrade", Hook: hooks.AfterControlPlaneUpgrade,
			HandlerFunc: func(_ context.Context, request *hooks.AfterControlPlaneUpgradeRequest, response *hooks.AfterControlPlaneUpgradeResponse) {
				answer(request.Cluster.ObjectMeta, response)
			}},
		{Name: "before-cluster-delete", Hook: hooks.BeforeClusterDelete,
			HandlerFunc: func(_ context.Context, request *hooks.BeforeClusterDeleteRequest, response *hooks.BeforeClusterDeleteResponse) {
				answer(request.Cluster.ObjectMeta, response)
			}},
	}
}

func run(port int, certificates, namespace, message string, clusters []string) error {
	ctrl.SetLogger(logr.Discard())
	for _, name := range clusters {
		waiting.Store(namespace+"/"+name, message)
	}
	catalog := runtimecatalog.New()
	if err := hooks.AddToCatalog(catalog); err != nil {
		return err
	}
	extension, err := server.New(server.Options{Catalog: catalog, Host: "127.0.0.1", Port: port, CertDir: certificates})
	if err != nil {
		return err
	}
	for _, handler := range handlers() {
		if err := extension.AddExtensionHandler(handler); err != nil {
			return fmt.Errorf("handler %s: %w", handler.Name, err)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return extension.Start(ctx)
}

func main() {
	port := flag.Int("port", 9443, "where to listen on 127.0.0.1")
	certificates := flag.String("cert-dir", "", "directory with tls.crt and tls.key")
	namespace := flag.String("namespace", "default", "namespace of the Clusters that wait")
	message := flag.String("message", "PackagesNotReady: waiting for kapp-controller 3.0.0", "what they wait for")
	flag.Parse()
	if err := run(*port, *certificates, *namespace, *message, flag.Args()); err != nil {
		log.Fatal(err)
	}
}
