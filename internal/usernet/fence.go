package usernet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
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
// runs as one of them, and for its own alone otherwise. Errors: farm.CodeNoUserNetwork.
func Fence(ctx context.Context, pid int, vms farm.UIDs, allow []netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	if err := fence(ctx, pid, vms, allow); err != nil {
		return &farm.Error{Kind: farm.Denied, Code: farm.CodeNoUserNetwork,
			Message: "network user is refused: the VM could reach the host's own addresses: " + err.Error(),
			Hint:    "install nftables on the host, and see that nft works there; or ask for --network none"}
	}
	return nil
}

func fence(ctx context.Context, pid int, vms farm.UIDs, allow []netip.AddrPort) error {
	place, err := PlaceOf(pid)
	if err != nil {
		return err
	}
	if place.UID == 0 {
		return errors.New("QEMU runs as root, whose connections cannot be told from the host's own")
	}
	resolvers, err := os.ReadFile("/etc/resolv.conf")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	users := farm.UIDs{First: place.UID, Last: place.UID}
	if vms.Has(place.UID) {
		users = vms
	}
	if _, err := nft(ctx, pid, Rules(users, Resolvers(string(resolvers)), allow), "-f", "-"); err != nil {
		return err
	}
	found, err := nft(ctx, pid, "", "--numeric", "list", "chain", "inet", Table, chain(users))
	if err == nil && !bytes.Contains(found, []byte("skuid "+match(users)+" goto")) {
		err = errors.New("nft has loaded the rules, and does not list them")
	}
	return err
}

// nft runs the program in the network namespace of a process.
func nft(ctx context.Context, pid int, input string, args ...string) ([]byte, error) {
	argv := append([]string{"nft"}, args...)
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, err
	}
	if ours, err := os.Readlink("/proc/self/ns/net"); err != nil || ours != theirs {
		argv = append([]string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid), "--"}, argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
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
