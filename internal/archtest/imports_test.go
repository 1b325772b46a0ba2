package archtest

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// outside are packages by which a pure package could look at the machine or change it.
var outside = []string{"os", "os/exec", "os/signal", "os/user", "net", "net/http", "syscall", "io/fs", "io/ioutil",
	"path/filepath", "log", "log/slog", "database/sql", "golang.org/x/sys/unix"}

// rules are about what a package, and those below it, may import outside of tests.
var rules = []struct {
	pkg     string
	only    func(path string) bool // nil: anything that never does not name
	never   []string               // these, and what lies below them
	because string
}{
	{"api", public, nil, "anyone may use the client without our dependencies"},
	{"internal/farm", standard, outside, "the words of the farm belong to every package, and must drag nothing in"},
	{"internal/numa", pure, outside, "a planner that reads nothing can be tested on every host there is"},
	{"internal/placement", planned, outside, "decisions are simulated before they are trusted"},
	{"internal/ledger", claimed, outside, "what a host has claimed is counted the same on every host, and tried alone"},
	{"internal/placer", placing, []string{"os", "os/exec", "net", "net/http", "syscall", "database/sql"},
		"it decides from what the store has, and knows neither who asks for VMs nor how hosts are reached"},
	{"internal/scaling", pure, outside, "decisions are simulated before they are trusted"},
	{"internal/policy", pure, outside, "who may do what must not depend on the machine that asks"},
	{"internal/lease", pure, []string{"os", "os/exec", "net/http", "syscall"},
		"what a VM is given follows from a list and from who has what"},
	{"internal/chunk", nil, outside, "how a file is cut follows from its bytes"},
	{"internal/transfer/swarm", pure, outside, "what many hosts do is simulated before it is trusted"},
	{"internal/wire", nil, outside, "what is on the wire follows from what is said"},
	{"internal/farmfile", filed, outside,
		"what a farm file changes follows from the file and the farm, and can be told before anything is touched"},
	{"internal/mounts", standard, outside, "what is mounted is read of, and never looked at: a server may not answer"},
	{"internal/stricttoml", nil, outside, "a text is read as it was handed over"},
	{"internal/metrics", nil, []string{"internal/agent", "internal/server", "internal/config", "internal/farm"},
		"it exports what it is handed, of whatever program"},
	{"internal/agent/meter", nil, []string{"internal/agent/cloud", "internal/config", "os/exec", "net"},
		"what is exported is read by functions that the agent hands over, and no listener is its own"},
	{"internal/lazyregexp", standard, nil, "every package may use it"},
	{"internal/breaker", pure, outside,
		"when something is tried again follows from what was told, and from the time that is brought"},
	{"internal/chart", pure, outside, "a picture follows from its arguments"},
	{"internal/tuning/report", nil, outside, "a report is made from findings, and looks at nothing"},
	{"internal/agent", nil, []string{"internal/store", "internal/server", "internal/apiserver", "internal/web",
		"internal/cli"}, "everything that happens on a host works with the server down"},
	{"internal/runner", nil, []string{"internal/cli", "internal/agent", "internal/hyper", "internal/config",
		"github.com/spf13/cobra", "github.com/spf13/pflag"},
		"a job is run the same way whatever parsed its command line, and the agent is asked through api"},
	{"internal/server", nil, []string{"internal/hyper", "internal/agent"},
		"the server knows hosts by their agents only"},
	{"internal/guest", nil, []string{"internal/agent", "internal/hyper", "internal/gateway", "os/exec"},
		"the protocol runs in the VM too"},
	{"internal/agent/services", nil, []string{"internal/network", "internal/agent/machine", "os/exec"},
		"services come by a VM's port: no network is made for them, and nothing is started"},
	{"internal/hyper", nil, []string{"internal/agent", "internal/vmimage", "internal/guest", "internal/network", "api"},
		"a hypervisor is handed paths, pins and a card, and knows no jobs and no kinds of networks"},
	{"internal/network", nil, []string{"internal/agent", "internal/config", "internal/hyper/libvirt", "internal/guest",
		"api"}, "a network is made for a machine, whoever's it is, and answers with a card"},
	{"internal/network/usernet", pure, nil, "rules follow from users and addresses"},
	{"internal/network/nwfilter", filtering, nil, "rules follow from a VM's card and addresses, whatever made it"},
	{"internal/network/dhcp", nil, []string{"internal/network", "internal/hyper"},
		"a server gives VMs what they have, whatever networks and machines they are"},
	{"internal/gateway", nil, []string{"internal/agent", "internal/guest", "internal/hyper"}, "it serves any stream"},
	{"internal/vmimage", nil, []string{"internal/agent", "internal/hyper", "internal/guest"},
		"images are built without a hypervisor"},
	{"internal/tuning/verify", nil, outside, "a proof that reads nothing can be tried on every host there is"},
	{"internal/netbench", nil, []string{"internal/agent", "internal/config", "internal/hyper", "os/exec", "api"},
		"it measures between any two machines, with an agent or without"},
	{"internal/filebench", nil, []string{"internal/agent", "internal/config", "internal/hyper", "os/exec", "api"},
		"the agent reads what it keeps, and who starts VMs hands it one"},
	{"internal/selftest/verdict", nil, outside, "a verdict follows from what was measured, on any host"},
	{"internal/selftest/report", nil, outside, "a report is made from findings, and looks at nothing"},
	{"internal", nil, []string{"os/user"},
		"a static program reads /etc/passwd alone by it: internal/names asks the host's name service"},
	{"internal/topology", nil, []string{"os", "os/exec"},
		"it reads the fs.FS it is given, so that recorded trees work"},
}

// pure lets the standard library, the words of the farm and expressions through.
func pure(path string) bool {
	return standard(path) || path == "internal/farm" || path == "internal/lazyregexp"
}

// filtering lets running nft through as well, and what the kernel says of devices.
func filtering(path string) bool {
	return pure(path) || path == "internal/program" || path == "golang.org/x/sys/unix"
}

// public lets the standard library through, and the wire types themselves.
func public(path string) bool { return standard(path) || path == "api" }

// planned lets the planner of one host through as well.
func planned(path string) bool { return pure(path) || path == "internal/numa" }

// claimed lets through what one user may have as well.
func claimed(path string) bool { return planned(path) || path == "internal/policy" }

// placing lets the pure decisions through that the placer makes, the store, and waiting.
func placing(path string) bool {
	return planned(path) || path == "internal/placement" || path == "internal/policy" || path == "internal/breaker" ||
		path == "internal/store" || path == "internal/sleep"
}

// filed lets through what a farm file is written in: TOML, and the words of OpenStack's flavors.
func filed(path string) bool {
	return pure(path) || path == "internal/stricttoml" || path == "internal/flavor" ||
		path == "github.com/pelletier/go-toml/v2"
}

func TestImports(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || isTestPackage(s.pkg) {
			continue
		}
		for _, rule := range rules {
			if !below(s.pkg, rule.pkg) {
				continue
			}
			for _, path := range s.imports {
				if rule.only != nil && !rule.only(path) ||
					slices.ContainsFunc(rule.never, func(n string) bool {
						return path == n ||
							own(n) && below(path, n)
					}) {
					t.Errorf("%s imports %s: %s", s.path, path, rule.because)
				}
			}
		}
	}
}

// importers are packages that few may import.
var importers = []struct {
	pkg     string // as path.Match has it
	by      []string
	because string
}{
	{"internal/cli", []string{"cmd", "e2e/claims"}, "cli wires the others; nobody wires cli, but a test compares it"},
	{"internal/guest/inside", []string{"cmd/grange-guest"},
		"it mounts, loads modules and reaps whatever ends: in a VM only"},
	{"internal/hyper/libvirt", []string{"internal/cli/daemon", "internal/cli/host", "e2e"}, "only the list of drivers names a driver"},
	{"internal/hyper/fake", []string{"internal/cli/daemon"}, "only the list of drivers, and tests, name a driver"},
	{"internal/agent", []string{"internal/cli/daemon", "e2e"}, "others talk to an agent through api"},
	{"internal/ledger", []string{"internal/agent"}, "a host has one ledger, its agent's"},
	{"internal/network", []string{"internal/agent", "e2e/net"}, "what acts on a host's network is its agent"},
	{"internal/network/usernet", []string{"internal/network"}, "only the list of kinds names a kind"},
	{"internal/network/nwfilter", []string{"internal/network", "e2e/net"}, "only kinds of networks filter"},
	{"internal/network/dhcp", []string{"internal/network", "internal/agent/machine"}, "only kinds of networks serve"},
	{"internal/placer", []string{"internal/server"}, "a server runs one placer, and all places come from it"},
	{"internal/config", []string{"internal/cli", "internal/agent", "e2e/accounting", "e2e/claims"},
		"a package takes what it needs as arguments"},
	{"internal/batch/*/setup", []string{"internal/cli", "e2e"},
		"people set a batch system up; a driver changes nothing of its configuration"},
	{"e2e", []string{"e2e"}, "tests of a machine are no library"},
}

func TestImporters(t *testing.T) {
	for _, s := range sources(t) {
		for _, pkg := range s.imports {
			for _, rule := range importers {
				allowed := slices.ContainsFunc(rule.by, func(by string) bool { return below(s.pkg, by) })
				is, err := path.Match(rule.pkg, pkg)
				if err != nil {
					t.Fatal(err)
				}
				if is && !s.test && !below(s.pkg, rule.pkg) && !allowed {
					t.Errorf("%s imports %s: %s", s.path, pkg, rule.because)
				}
			}
			if isTestPackage(pkg) && !s.test && !isTestPackage(s.pkg) && !below(s.pkg, "e2e") {
				t.Errorf("%s imports %s, which is for tests", s.path, pkg)
			}
		}
	}
}

// isTestPackage reports whether a package holds tests or what tests need: hypertest, storetest. What tests hosts is of
// the product.
func isTestPackage(pkg string) bool {
	return own(pkg) && strings.HasSuffix(pkg, "test") && pkg != "internal/selftest"
}

// guestModules are all modules that grange-guest may consist of beside the standard library. It is part of every image,
// and its size is a part of every start.
var guestModules = []string{"golang.org/x/sys"}

func TestGuestIsSmall(t *testing.T) {
	imports := map[string][]string{}
	for _, s := range sources(t) {
		if !s.test {
			imports[s.pkg] = append(imports[s.pkg], s.imports...)
		}
	}
	seen := map[string]bool{}
	for todo := []string{"cmd/grange-guest"}; len(todo) > 0; todo = todo[1:] {
		pkg := todo[0]
		if seen[pkg] {
			continue
		}
		seen[pkg] = true
		switch {
		case own(pkg):
			todo = append(todo, imports[pkg]...)
		case pkg == "net/http" || pkg == "crypto/tls" || pkg == "html/template":
			t.Errorf("grange-guest imports %s, which makes it some megabytes larger", pkg)
		case !standard(pkg) && !slices.ContainsFunc(guestModules, func(m string) bool { return below(pkg, m) }):
			t.Errorf("grange-guest imports %s: a module of the guest needs a line in guestModules, and a reason", pkg)
		}
	}
}

// runners may start programs of the host. Each does so in one function: absolute path, fixed environment, time limit.
// deathsig starts those of the others.
var runners = []string{"internal/disk", "internal/sandbox", "internal/hosttree", "internal/vmimage",
	"internal/hyper/libvirt", "internal/program", "internal/tuning/apply", "internal/steps",
	"internal/store/storetest", "internal/gateway/gatewaytest", "internal/network", "internal/rawqemu",
	"internal/selftest", "internal/deathsig",
	"internal/execjob",         // `grange exec`, and what a measurement runs beside it
	"internal/bench",           // the work of a benchmark: processes, and the site's own program
	"internal/imagerecipe",     // as the user who builds: mmdebstrap, and QEMU in a sandbox
	"internal/gateway/confine", // as the caller, in namespaces of its own: what starts virtiofsd, sftp-server
	"internal/shell",           // as the user: the command of a session, in a terminal of its own
	"e2e"}

func TestProgramsAreStartedInFewPlaces(t *testing.T) {
	for _, s := range sources(t) {
		allowed := slices.ContainsFunc(runners, func(r string) bool { return below(s.pkg, r) })
		if slices.Contains(s.imports, "os/exec") && !s.test && !allowed {
			t.Errorf("%s imports os/exec: add its package to runners, with a reason, or use what is there", s.path)
		}
	}
}
