// Command metal runs the packaged product on whole emulated hosts: Debian with its own kernel, KVM, systemd, libvirt,
// AppArmor and boot loader, two NUMA nodes and two threads a core.
//
//	metal test [-quick] [-run REGEXP]     the tests of this directory; the last line is JSON
//	metal up [-suite SUITE] [-hosts N] [-bare]
//	metal down
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/grange-project/grange/e2e/metal/metallab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	commands := map[string]func(context.Context, []string) error{"test": test, "up": up, "down": down}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: metal test|up|down [flags]")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](ctx, os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "metal:", err)
		os.Exit(1)
	}
}

func up(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("up", flag.ExitOnError)
	suite := flags.String("suite", "bookworm", "`SUITE` of Debian: bookworm or trixie")
	hosts := flags.Int("hosts", 1, "`NUMBER` of hosts, on one network")
	emulator := flags.String("emulator", metallab.QEMU11, "`SUITE` of Debian whose QEMU emulates them: "+
		metallab.QEMU11+" or "+metallab.QEMU7)
	bare := flags.Bool("bare", false, "without grange")
	packages := flags.String("packages", "", "`DIR` with deb packages; those of this tree are built otherwise")
	flags.Parse(args)
	l, err := metallab.Open()
	if err != nil {
		return err
	}
	o := metallab.Options{Suite: *suite, Emulator: *emulator, Keep: true}
	if !*bare {
		if o.Debs, err = metallab.BuiltAgentDebs(ctx, *packages); err != nil {
			return err
		}
	}
	if o.LAN, err = metallab.NewLAN(); err != nil {
		return err
	}
	for i := range *hosts {
		o.Name, o.Peer = fmt.Sprintf("metal%d", i+1), i+1
		h, err := l.Start(ctx, o)
		if err != nil {
			return err
		}
		fmt.Printf("%s is up, to the others 10.77.0.%d: ssh -i %s -p %d -o StrictHostKeyChecking=no -o "+
			"UserKnownHostsFile=/dev/null root@127.0.0.1\n", h.Name, o.Peer, l.KeyFile(), h.Port())
	}
	fmt.Println("make metal-down ends them")
	return nil
}

func down(ctx context.Context, args []string) error {
	flag.NewFlagSet("down", flag.ExitOnError).Parse(args)
	l, err := metallab.Open()
	if err != nil {
		return err
	}
	hosts, err := l.Running(ctx)
	if err != nil {
		return err
	}
	for _, h := range hosts {
		if err := h.Stop(ctx); err != nil {
			return err
		}
		fmt.Println(h.Name, "has ended")
	}
	return nil
}
