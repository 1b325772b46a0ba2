package usernet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

const toolTimeout = 10 * time.Second

// Place is where rules have to be: a network namespace, by its number, and QEMU's user in it.
type Place struct {
	Namespace string
	UID       uint32
}

// PlaceOf reads where a process is, from the kernel.
func PlaceOf(pid int) (Place, error) {
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return Place{}, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Place{}, err
	}
	for line := range strings.Lines(string(status)) {
		ids, ok := strings.CutPrefix(line, "Uid:") // real, effective, saved, of files
		if !ok {
			continue
		}
		if words := strings.Fields(ids); len(words) == 4 {
			uid, err := strconv.ParseUint(words[3], 10, 32) // sockets are of this one
			return Place{namespace, uint32(uid)}, err
		}
	}
	return Place{}, fmt.Errorf("/proc/%d/status names no user", pid)
}

// Fence has the rules where a VM's QEMU is, and proves that they are there. They hold for all users of VMs when QEMU
// runs as one of them, and for its own alone otherwise, until all that are named have been released. Errors:
// farm.CodeNoUserNetwork.
func Fence(ctx context.Context, pid int, vms farm.UIDs, reach Reach, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	if err := fence(ctx, pid, vms, reach, names); err != nil {
		return &farm.Error{Kind: farm.Denied, Code: farm.CodeNoUserNetwork,
			Message: "network user is refused: the VM could reach the host's own addresses: " + err.Error(),
			Hint:    "install nftables on the host, and see that nft works there; or ask for --network none"}
	}
	return nil
}

func fence(ctx context.Context, pid int, vms farm.UIDs, reach Reach, names []string) error {
	place, err := PlaceOf(pid)
	if err != nil {
		return err
	}
	if place.UID == 0 {
		return errors.New("QEMU runs as root, whose connections cannot be distinguished from the host's own")
	}
	resolvers, err := os.ReadFile("/etc/resolv.conf")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if reach.Link {
		links, err := linkNetworks()
		if err != nil {
			return err
		}
		reach.Closed = append(links, reach.Closed...)
	}
	users := farm.UIDs{First: place.UID, Last: place.UID}
	if vms.Has(place.UID) {
		users = vms
	}
	if _, err := nft(ctx, pid, Rules(users, Resolvers(string(resolvers)), reach, names...), "-f",
		"-"); err != nil {
		return err
	}
	found, err := nft(ctx, pid, "", "--numeric", "list", "chain", "inet", Table, chain(users))
	if err == nil && !bytes.Contains(found, []byte("skuid "+match(users)+" goto")) {
		err = errors.New("nft has loaded the rules, and does not list them")
	}
	return err
}

// linkNetworks are the networks that this host is on.
func linkNetworks() (all []netip.Prefix, err error) {
	addresses, err := net.InterfaceAddrs()
	for _, a := range addresses {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast() || p.IsSingleIP() {
			continue
		}
		if p = p.Masked(); !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all, err
}

// Release removes the rules that no VM needs any more once this one has ended, from our own network: where QEMU's was
// another, its rules stay. A VM that was never fenced, or is released already, is no error.
func Release(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	if _, err := lookPath("nft"); err != nil {
		return nil // there were never any rules
	}
	tables, err := nft(ctx, ourselves, "", "list", "tables", "inet")
	if err != nil || !slices.Contains(strings.Split(string(tables), "\n"), "table inet "+Table) {
		return err
	}
	listed, err := nft(ctx, ourselves, "", "list", "table", "inet", Table)
	if err != nil {
		return err
	}
	remove := func(chains ...string) error {
		var b strings.Builder
		for _, c := range chains {
			fmt.Fprintf(&b, "flush chain inet %[1]s %[2]s\ndelete chain inet %[1]s %[2]s\n", Table, c)
		}
		_, err := nft(ctx, ourselves, b.String(), "-f", "-")
		return err
	}
	chains := chainsOf(string(listed))
	if slices.Contains(chains, vmPrefix+name) {
		if err := remove(vmPrefix + name); err != nil {
			return err
		}
	}
	// All or nothing: what another VM needs stays, and so does what somebody else has removed meanwhile. to_host and
	// to_site go with the last range.
	for _, c := range chains {
		if rules, ok := strings.CutPrefix(c, neededPrefix); ok && remove(c, rules) == nil {
			remove("to_host", "to_site")
		}
	}
	return nil
}

// ourselves stands for our own network in the place of a process.
const ourselves = 0

// nft runs the program in the network namespace of a process.
func nft(ctx context.Context, pid int, input string, args ...string) ([]byte, error) {
	argv := append([]string{"nft"}, args...)
	if pid != ourselves {
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			return nil, err
		}
		if ours, err := os.Readlink("/proc/thread-self/ns/net"); err != nil || ours != theirs {
			argv = append([]string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid), "--"}, argv...)
		}
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var err error
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	if cmd.Path, err = lookPath(argv[0]); err != nil {
		return nil, err
	}
	cmd.Err = nil // of a look in our own PATH
	cmd.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("nft: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// lookPath finds a program of the system, whatever our PATH.
func lookPath(name string) (string, error) {
	for _, dir := range []string{"/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"} {
		if path, err := exec.LookPath(dir + name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("this host has no %s", name)
}
