// Command registry is a registry of images on loopback, without TLS and in memory. A tarball that is put to /bundles/NAME/TAG is an imgpkg
// bundle NAME:TAG from then on.
package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// What imgpkg knows a bundle by.
const bundleLabel = "dev.carvel.imgpkg.bundle"

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: registry FILE, where FILE is written with the address once it is served")
	}
	if err := serve(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func serve(addressFile string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := listener.Addr().String()
	mux := http.NewServeMux()
	mux.Handle("/v2/", registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	mux.HandleFunc("PUT /bundles/{name}/{tag}", func(answer http.ResponseWriter, request *http.Request) {
		bundle := address + "/" + request.PathValue("name") + ":" + request.PathValue("tag")
		if err := push(bundle, request.Body); err != nil {
			http.Error(answer, err.Error(), http.StatusBadRequest)
		}
	})
	// Renamed into place: a reader reads all of it.
	unfinished := addressFile + ".new"
	if err := os.WriteFile(unfinished, []byte(address), 0o600); err != nil {
		return err
	}
	if err := os.Rename(unfinished, addressFile); err != nil {
		return err
	}
	return http.Serve(listener, mux)
}

// push makes an image of one layer, which imgpkg takes for a bundle, and pushes it.
func push(bundle string, content io.Reader) error {
	layer, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil }
	files, err := tarball.LayerFromOpener(opener)
	if err != nil {
		return fmt.Errorf("read the tarball: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, files)
	if err != nil {
		return err
	}
	image, err = mutate.Config(image, v1.Config{Labels: map[string]string{bundleLabel: "true"}})
	if err != nil {
		return err
	}
	reference, err := name.ParseReference(bundle)
	if err != nil {
		return err
	}
	return remote.Write(reference, image)
}
