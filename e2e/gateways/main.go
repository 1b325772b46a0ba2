// Command gateways runs the contract of file-system gateways in real virtual machines: for each gateway it boots VMs
// with a directory of a user of this host, and has what a job, and root, of a VM may try be tried there, while the host
// looks at its side. It needs root, and what scripts/install-packages test installs. The last line is JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/gateway/features"
)

// figures is the line at the end.
type figures struct {
	Failed   int      `json:"failed"`
	Passed   int      `json:"passed"`
	Lacking  int      `json:"lacking"` // of those that passed: declared as not kept, and found so
	VMs      int      `json:"vms"`
	Seconds  float64  `json:"seconds"`
	Gateways []string `json:"gateways"`
}

// inside says that this process has mounts of its own.
const inside = "GRANGE_GATEWAYS_INSIDE"

func main() {
	gateways := flag.String("gateways", "", "those to try, separated by commas; none: all")
	only := flag.String("only", "", "features to try, separated by commas; none: all")
	programs := flag.String("programs", "", "directory with grange and grange-guest; none: they are built")
	flag.Parse()
	if os.Getenv(inside) == "" {
		fatal(again())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	began, f := time.Now(), figures{}
	if err := f.all(ctx, *programs, words(*gateways), words(*only)); err != nil {
		f.result("suite", "", []string{err.Error()})
	}
	f.Seconds = time.Since(began).Round(100 * time.Millisecond).Seconds()
	text, _ := json.Marshal(f)
	fmt.Println(string(text))
	if f.Failed > 0 {
		os.Exit(1)
	}
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateways:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// again runs this program in a mount namespace of its own: what the suite mounts goes when it ends, however it ends.
func again() error {
	if os.Getuid() != 0 {
		return errors.New("it needs root, for virtual machines and for other users' files")
	}
	unix.Umask(0o022)
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(exit.ExitCode())
	}
	return err
}

func (f *figures) all(ctx context.Context, programs string, gateways, only []string) (err error) {
	l, err := newLab(ctx, programs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	for _, g := range features.Gateways {
		if name := string(g.Name); len(gateways) == 0 || slices.Contains(gateways, name) {
			f.Gateways = append(f.Gateways, name)
			f.gateway(ctx, l, g, only)
		}
	}
	f.VMs = l.vms
	if left := l.host.Leaks(ctx); len(left) > 0 {
		return fmt.Errorf("left on the host: %s", strings.Join(left, "; "))
	}
	return nil
}

// result counts one.
func (f *figures) result(gateway, feature string, wrong []string) {
	name := strings.TrimSpace(gateway + " " + feature)
	if len(wrong) == 0 {
		f.Passed++
		fmt.Println("ok  ", name)
		return
	}
	f.Failed++
	fmt.Printf("FAIL %s: %s\n", name, strings.Join(wrong, "\n    "))
}
