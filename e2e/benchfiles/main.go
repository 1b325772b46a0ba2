// Command benchfiles measures how fast directories of a host are in VMs: by each gateway that the agent offers, by
// `grange gateway bench`, beside virtiofs and 9p as QEMU alone has them, with servers that are root: fast and unsafe,
// for root in the guest is root on the host. All use the same files in the same turns. The last line is JSON; its
// ratios are of the gateway that auto chooses afterwards.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/e2e/lastline"
	"github.com/grange-project/grange/e2e/metal/metallab"
)

func main() {
	var s setup
	flag.StringVar(&s.Size, "size", "64M", "`SIZE` of the large file")
	flag.IntVar(&s.Files, "files", 300, "small files")
	flag.StringVar(&s.Time, "time", "10s", "`DURATION` of each measurement, at most")
	flag.IntVar(&s.Rounds, "rounds", 3, "rounds")
	flag.StringVar(&s.SVG, "svg", "", "draw the results to `FILE` as well")
	metal := flag.Bool("metal", true, "under KVM, on an emulated host with Debian's libvirt and AppArmor; else emulated, here")
	suite := flag.String("suite", metallab.Suites[0], "`SUITE` of Debian of that host")
	packages := flag.String("packages", "", "`DIR` with deb packages; those of this tree are built otherwise")
	programs := flag.String("programs", "", "with -metal=false: `DIR` with grange and grange-guest; this tree's are built otherwise")
	here := flag.Bool("here", false, "on this host, with the agent that is installed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	measure := func() (figures, error) { return onMetal(ctx, s, *suite, *packages) }
	switch {
	case *here:
		measure = func() (figures, error) { return installed(s).run(ctx) }
	case !*metal:
		measure = func() (figures, error) { return inLab(ctx, s, *programs) }
	}
	if err := report(s, measure); err != nil {
		fmt.Fprintln(os.Stderr, "benchfiles:", err)
		os.Exit(1)
	}
}

func report(s setup, measure func() (figures, error)) error {
	f, err := measure()
	if err != nil {
		return err
	}
	fmt.Print(f.table())
	if s.SVG != "" {
		if err := os.WriteFile(s.SVG, []byte(f.picture()), 0o644); err != nil {
			return err
		}
	}
	return lastline.Print(f, 0)
}

// inLab measures under emulation, on a host of a directory of its own.
func inLab(ctx context.Context, s setup, programs string) (f figures, err error) {
	fmt.Println("building, starting libvirtd and the agent, building the micro image")
	l, err := lab.Start(ctx, lab.Options{Programs: programs})
	if err != nil {
		return f, err
	}
	defer l.Close()
	f, err = host{setup: s, grange: l.Binary, socket: l.Socket, config: l.Config, images: l.Dir + "/state/images",
		kvm: lab.Accelerator() == "kvm"}.run(ctx)
	if err == nil {
		if left := l.Leaks(ctx); len(left) > 0 {
			err = fmt.Errorf("left on the host: %v", left)
		}
	}
	return f, err
}
