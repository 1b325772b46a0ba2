package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/deathsig"
)

// What outside leaves in the directory that it names.
const (
	builtPrograms = "bin"
	builtImage    = "micro"
)

// outside builds the image, which needs a mirror of Debian, and has the rest run on a host of its own: this program in
// another network and with an /etc of its own, both of which go with its processes.
func outside(ctx context.Context, args []string) (err error) {
	alone, err := net.Listen("unix", "@grange-test-grid") // an abstract socket: it goes with us, whatever ends us
	if err != nil {
		return fmt.Errorf("another one runs here, and %s is one for all: %w", tree, err)
	}
	defer alone.Close()
	made, err := mountPoint(tree)
	if err != nil {
		return err
	}
	if made {
		defer func() { err = errors.Join(err, os.Remove(tree)) }()
	}
	builder, err := lab.Start(ctx, lab.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, builder.Close()) }()
	image := filepath.Join(builder.Dir, builtImage)
	if err := errors.Join(os.Mkdir(image, 0o755), builder.Export(image)); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"-built", builder.Dir}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Minute // it ends what it started
	if err := deathsig.Start(cmd, syscall.SIGTERM); err != nil {
		return err
	}
	return cmd.Wait()
}

// mountPoint makes an empty directory of the root where there is none.
func mountPoint(path string) (made bool, err error) {
	err = os.Mkdir(path, 0o755)
	if errors.Is(err, os.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

// ownFiles gives this process an /etc over the machine's, and an empty /var/spool.
func ownFiles() error {
	const layer = "/mnt"
	if err := errors.Join(syscall.Mount("tmpfs", layer, "tmpfs", 0, "mode=755"),
		os.Mkdir(layer+"/up", 0o755), os.Mkdir(layer+"/work", 0o755)); err != nil {
		return err
	}
	return errors.Join(
		syscall.Mount("overlay", "/etc", "overlay", 0, "lowerdir=/etc,upperdir="+layer+"/up,workdir="+layer+"/work"),
		syscall.Mount("tmpfs", "/var/spool", "tmpfs", 0, "mode=755"))
}

// The site around the host: its network is 10.1.0.0/24 and 2001:db8::/64, as in the guide, and behind its router are a
// web server for each family.
const (
	neighbour = "10.1.0.9"
	web4      = "198.51.100.10"
	web6      = "2001:db8:80::10"
	domain    = "example.net"
)

// siteAddresses are what the site's side answers at, in the namespace of the process that is it.
var siteAddresses = []string{
	"addr add 10.1.0.1/24 dev site", "addr add 2001:db8::1/64 dev site nodad", // the router
	"addr add 10.1.0.2/24 dev site", "addr add 2001:db8::2/64 dev site nodad", // the name server
	"addr add " + neighbour + "/24 dev site",
	"addr add " + web4 + "/32 dev lo", "addr add " + web6 + "/128 dev lo nodad",
}

// connect gives this process's network a bridge, with the site behind it as another process of this program.
func connect(ctx context.Context, dir string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	site := exec.Command(self, "-site", dir)
	site.Stdout, site.Stderr = os.Stdout, os.Stderr
	site.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET}
	if err := deathsig.Start(site, syscall.SIGKILL); err != nil {
		return nil, err
	}
	pid := fmt.Sprint(site.Process.Pid)
	steps := []string{"link set lo up", "link add br0 type bridge mcast_snooping 0", "addr add 10.1.0.5/24 dev br0",
		"addr add 2001:db8::5/64 dev br0 nodad", "link set br0 up",
		"link add eno2 type veth peer name site netns " + pid, "link set eno2 master br0 up"}
	enter := []string{"--net=/proc/" + pid + "/ns/net", "--", "/usr/sbin/ip"}
	for _, step := range steps {
		err = errors.Join(err, command(ctx, "/usr/sbin/ip", strings.Fields(step)...))
	}
	for _, step := range append([]string{"link set lo up", "link set site up"}, siteAddresses...) {
		err = errors.Join(err, command(ctx, "/usr/bin/nsenter", append(enter, strings.Fields(step)...)...))
	}
	return site, err
}

func command(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
