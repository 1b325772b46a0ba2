// Package gatewaytest is the contract of a gateway as tests: what a job may expect of a directory of the host, and what
// the host may expect of the job. It makes plain system calls on a mounted directory, and knows no gateway.
//
// What a gateway cannot keep it declares, with the reason and with what a program meets instead. The suite holds both:
// what is not declared is kept, and what is declared differs as it says.
package gatewaytest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/gateway/features"
)

// timeout bounds every feature; the slowest takes some seconds.
const timeout = 2 * time.Minute

// Identity is that of a process.
type Identity struct {
	UID, GID uint32
	Groups   []uint32
}

// Gateway is one under test.
type Gateway struct {
	features.Gateway
	// Serve mounts dir as a VM of the caller's sees it, at a path that only this call has, and returns that path. end
	// ends the connection between host and VM, whatever is under way. A directory that is read-only on the host is
	// mounted for writing: a VM is not trusted to mount it otherwise.
	Serve func(t *testing.T, dir string, caller Identity, readOnly bool) (path string, end func())
}

// Of the environment: which part of the suite a process runs.
const (
	partNamespace = "namespace"
	partFeature   = "feature "
	envPart       = "GATEWAYTEST"
)

// Run runs the contract, as all that its test does. It takes root: the suite mounts, and takes any identity.
func Run(t *testing.T, g Gateway) {
	switch part := os.Getenv(envPart); {
	case part == partNamespace:
		g.run(t)
	case strings.HasPrefix(part, partFeature):
		runFeature(t, strings.TrimPrefix(part, partFeature))
	default:
		if os.Getuid() != 0 {
			t.Skip("only root mounts, and becomes others")
		}
		namespace(t)
	}
}

// again makes a process that runs a part of this test.
func again(ctx context.Context, pattern, part string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run="+pattern, "-test.v")
	cmd.Env = append(os.Environ(), envPart+"="+part)
	return cmd
}

// namespace runs the suite where all that it mounts goes when it ends, however it ends.
func namespace(t *testing.T) {
	pattern := "^" + t.Name() + "$"
	if asked := flag.Lookup("test.run").Value.String(); strings.Contains(asked, "/") {
		pattern = asked
	}
	cmd := again(t.Context(), pattern, partNamespace)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, os.ErrPermission) {
		t.Skip("no mount namespaces here: ", err)
	}
	if err != nil || bytes.Contains(out, []byte("--- SKIP")) {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// call is what a process that tries a feature is given.
type call struct {
	Feature string
	Host    string   // the directory on the host
	VMs     []string // where each VM sees it
	Caller  Identity
	Result  string // file for what failed, where host and VM are one machine

	// Where they are not:
	ReadOnly bool
	Number   int // of the VM
	Instead  map[syscall.Errno][]syscall.Errno
}

// ended is the last line of a result.
const ended = "ended"

func (g Gateway) run(t *testing.T) {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	for _, f := range all() {
		if f.asRoot && g.RefusesRoot != "" { // the sessions in VMs see that it does
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			for _, what := range Judge(g.Gateway, f.Name, g.try(t, f)) {
				t.Error(what)
			}
		})
	}
	for name := range g.Lacks {
		if _, ok := tests[name]; !ok {
			t.Errorf("%s is declared as lacking %q, which is not a feature", g.Name, name)
		}
	}
}

// Judge compares what a feature's test met with what is declared, and returns where they differ.
func Judge(g features.Gateway, name string, failed []string) []string {
	lack, lacking := g.Lacks[name]
	must := slices.ContainsFunc(features.All, func(f features.Feature) bool { return f.Name == name && f.Must })
	switch {
	case must && tests[name].asRoot && g.RefusesRoot != "":
		lack = features.Lack{Seen: g.RefusesRoot} // nothing is served, so nothing is left there
	case !lacking:
		return failed
	case must:
		return []string{"no gateway may lack this"}
	case len(failed) == 0:
		return []string{"it is kept, and declared as lacking: " + lack.Why}
	}
	seen, differ := regexp.MustCompile(lack.Seen), []string(nil)
	for _, what := range failed {
		if !seen.MatchString(what) {
			differ = append(differ, fmt.Sprintf("not as declared (%s): %s", lack.Seen, what))
		}
	}
	return differ
}

// try serves a fresh directory and tries a feature on it, in a process of its own: one that waits for a page of a
// gateway must not be the one that brings it.
func (g Gateway) try(t *testing.T, f feature) []string {
	top, err := os.MkdirTemp("", "gatewaytest-") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	c := call{Feature: f.Name, Host: filepath.Join(top, "host", "dir"), Caller: someone,
		Result: filepath.Join(t.TempDir(), "result"), Instead: g.Instead}
	if f.asRoot {
		c.Caller = root
	}
	for dir, mode := range map[string]os.FileMode{top: 0o755, filepath.Dir(c.Host): 0o755, c.Host: 0o700} {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(c.Host, int(c.Caller.UID), int(c.Caller.GID)); err != nil {
		t.Fatal(err)
	}
	var ends []func()
	for range max(1, f.vms) {
		path, end := g.Serve(t, c.Host, c.Caller, f.readOnly)
		c.VMs, ends = append(c.VMs, path), append(ends, end)
	}
	return c.run(t, ends)
}

func (c call) run(t *testing.T, ends []func()) []string {
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cmd := again(ctx, "^"+strings.Split(t.Name(), "/")[0]+"$", partFeature+string(text))
	stopped, err := cmd.StdinPipe() // closed when the connection has ended
	if err != nil {
		t.Fatal(err)
	}
	ready, write, err := os.Pipe() // closed when the connection shall end
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	cmd.ExtraFiles = []*os.File{write}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	ready.Read(make([]byte, 1))
	for _, end := range ends {
		end()
	}
	stopped.Close()
	err = cmd.Wait()
	result, _ := os.ReadFile(c.Result)
	lines := strings.Split(strings.TrimSuffix(string(result), "\n"), "\n")
	if last := len(lines) - 1; lines[last] == ended {
		return lines[:last]
	}
	if ctx.Err() != nil {
		t.Fatalf("it hangs\n%s%s", result, &out)
	}
	t.Fatalf("%v\n%s%s", err, result, &out)
	return nil
}

// runFeature is the process that tries a feature.
func runFeature(t *testing.T, text string) {
	v := &vm{}
	if err := json.Unmarshal([]byte(text), &v.call); err != nil {
		t.Fatal(err)
	}
	result, err := os.Create(v.Result)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(connection)
	v.report = func(what string) { fmt.Fprintln(result, strings.ReplaceAll(what, "\n", "; ")) }
	v.on(hostOf(v.Feature))
	fmt.Fprintln(result, ended)
}
