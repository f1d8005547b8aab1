// Which versions kapp-controller accepts for ranges of Packages.
//
// The answers are those of its own functions: the validation of Packages, the version that it reads from an API server, and the two
// checks of its PackageInstall reconciler. The harness builds this program with the requirements of kc. Usage: ranges < QUESTIONS.
// Standard input is one JSON object. Each line of the output is the answer for one range.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"os"
	// For linkname.
	_ "unsafe"

	"github.com/go-logr/logr"
	"github.com/k14s/semver/v4"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	packaging "carvel.dev/kapp-controller/pkg/apis/packaging/v1alpha1"
	datapackaging "carvel.dev/kapp-controller/pkg/apiserver/apis/datapackaging/v1alpha1"
	"carvel.dev/kapp-controller/pkg/apiserver/apis/datapackaging/validation"
	"carvel.dev/kapp-controller/pkg/componentinfo"
	"carvel.dev/kapp-controller/pkg/packageinstall"
)

//go:linkname acceptsKubernetes carvel.dev/kapp-controller/pkg/packageinstall.(*PackageInstallCR).clusterVersionConstraintsSatisfied
func acceptsKubernetes(*packageinstall.PackageInstallCR, *datapackaging.Package, semver.Version) bool

//go:linkname acceptsKappController carvel.dev/kapp-controller/pkg/packageinstall.(*PackageInstallCR).kcVersionConstraintsSatisfied
func acceptsKappController(*packageinstall.PackageInstallCR, *datapackaging.Package) bool

type questions struct {
	Ranges   []string `json:"ranges"`
	Versions []string `json:"versions"`
}

type answer struct {
	// Whether the API server of Packages admits the range.
	Valid bool `json:"valid"`
	// One letter for each version, as version of Kubernetes and as version of kapp-controller; nothing for an invalid range.
	Kubernetes     string `json:"kubernetes"`
	KappController string `json:"kappController"`
}

const (
	accepted   = 'y'
	excluded   = 'n'
	panicked   = 'p'
	unreadable = 'u'
)

func main() {
	log.SetFlags(0)
	var asked questions
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		log.Fatal(err)
	}
	out := bufio.NewWriter(os.Stdout)
	lines := json.NewEncoder(out)
	for _, text := range asked.Ranges {
		if err := lines.Encode(answerFor(text, asked.Versions)); err != nil {
			log.Fatal(err)
		}
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}

func answerFor(text string, versions []string) answer {
	if len(validation.ValidatePackageVersionConstraints(text, field.NewPath("constraints"))) > 0 {
		return answer{}
	}
	selection := &datapackaging.VersionSelection{Constraints: text}
	pkg := &datapackaging.Package{}
	pkg.Spec.KubernetesVersionSelection = selection
	pkg.Spec.KappControllerVersionSelection = selection
	var ofKubernetes, ofKappController []rune
	for _, version := range versions {
		info := componentinfo.NewComponentInfo(client{version: version}, nil, version)
		reconciler := packageinstall.NewPackageInstallCR(
			&packaging.PackageInstall{}, logr.Discard(), nil, nil, nil, info, packageinstall.Opts{}, nil)
		ofKubernetes = append(ofKubernetes, outcome(func() (bool, error) {
			reported, err := info.KubernetesVersion("installer", nil, nil)
			return err == nil && acceptsKubernetes(reconciler, pkg, reported), err
		}))
		ofKappController = append(ofKappController, outcome(func() (bool, error) {
			return acceptsKappController(reconciler, pkg), nil
		}))
	}
	return answer{Valid: true, Kubernetes: string(ofKubernetes), KappController: string(ofKappController)}
}

func outcome(accepts func() (bool, error)) (letter rune) {
	defer func() {
		if recover() != nil {
			letter = panicked
		}
	}()
	isAccepted, err := accepts()
	switch {
	case err != nil:
		return unreadable
	case isAccepted:
		return accepted
	default:
		return excluded
	}
}

// Client of an API server that reports a version.
type client struct {
	kubernetes.Interface
	version string
}

func (c client) Discovery() discovery.DiscoveryInterface {
	return server{version: c.version}
}

type server struct {
	discovery.DiscoveryInterface
	version string
}

func (s server) ServerVersion() (*version.Info, error) {
	return &version.Info{GitVersion: s.version}, nil
}
