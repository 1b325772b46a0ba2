// Package vmuid looks whether user IDs are free for VMs: whether the host's accounts leave a range alone, and which of
// it have processes.
package vmuid

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/names"
)

// others are ranges that programs hand out without an account for each, by systemd's list of IDs and Debian's policy.
var others = []struct {
	first, last uint64
	whose       string
}{
	{60001, 65535, "systemd gives to services and homes, and Debian to packages"},
	{524288, 1879048191, "systemd gives to containers"},
	{2130706432, 2147483647, "grange's own tools run as, and systemd gives to images of other systems"},
}

// Check returns an error where a range is not the VMs' alone, by the files of the host at root: an account, a group, a
// user's subordinate IDs or those that useradd would give next lie in it, or the kernel does not have them here. Error:
// farm.CodeUIDsTaken.
func Check(root fs.FS, u farm.UIDs) error {
	if u.None() {
		return nil
	}
	for _, o := range others {
		if u.Overlaps(o.first, o.last) {
			return taken(u, fmt.Sprintf("%d-%d are what %s", o.first, o.last, o.whose))
		}
	}
	for _, check := range []func(fs.FS, farm.UIDs) (string, error){mapped, accounts, subordinate, handedOut} {
		why, err := check(root, u)
		if err != nil {
			return taken(u, "that cannot be checked: "+err.Error())
		}
		if why != "" {
			return taken(u, why)
		}
	}
	return nil
}

// Ask looks for accounts that only the host's name service knows, as of SSSD, among some of a range: it cannot be asked
// for all. That the service does not answer is no error: the files are what Check has.
func Ask(ctx context.Context, service *names.Service, u farm.UIDs) error {
	if u.None() {
		return nil
	}
	some := []uint32{u.First, u.Last}
	for range 6 {
		some = append(some, u.First+rand.Uint32N(u.Last-u.First+1))
	}
	if found, err := service.Users(ctx, some); err == nil && len(found) > 0 {
		return taken(u, fmt.Sprintf("%d is account %s", found[0].UID, found[0].Name))
	}
	return nil
}

func taken(u farm.UIDs, why string) error {
	return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeUIDsTaken,
		Message: fmt.Sprintf("vm_uids: %v is not the VMs' alone: %s", u, why),
		Hint:    "choose a range that nobody uses as vm_uids in the agent's configuration, or none"}
}

// lines are those of a file, without comments; a file that is not there has none.
func lines(root fs.FS, name string) ([]string, error) {
	text, err := fs.ReadFile(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []string
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		if line != "" {
			all = append(all, line)
		}
	}
	return all, err
}

// entries are the lines of a file whose fields are separated by colons, those with three fields at least.
func entries(root fs.FS, name string) (all [][]string, err error) {
	text, err := lines(root, name)
	for _, line := range text {
		if f := strings.Split(line, ":"); len(f) >= 3 {
			all = append(all, f)
		}
	}
	return all, err
}

// mapped: in a user namespace the kernel may have fewer.
func mapped(root fs.FS, u farm.UIDs) (string, error) {
	for _, name := range []string{"proc/self/uid_map", "proc/self/gid_map"} {
		all, err := lines(root, name)
		if err != nil {
			return "", err
		}
		within := false
		for _, line := range all {
			var inside, outside, count uint64
			if _, err := fmt.Sscan(line, &inside, &outside, &count); err != nil {
				return "", fmt.Errorf("%s: %w", name, err)
			}
			within = within || uint64(u.First) >= inside && uint64(u.Last) < inside+count
		}
		if !within {
			return "the user namespace of this host does not have it: " + name, nil
		}
	}
	return "", nil
}

func accounts(root fs.FS, u farm.UIDs) (string, error) {
	for _, name := range []string{"etc/passwd", "etc/group"} {
		all, err := entries(root, name)
		if err != nil {
			return "", err
		}
		for _, f := range all {
			if id, err := strconv.ParseUint(f[2], 10, 32); err == nil && u.Has(uint32(id)) {
				return fmt.Sprintf("%d is %s in /%s", id, f[0], name), nil
			}
		}
	}
	return "", nil
}

func subordinate(root fs.FS, u farm.UIDs) (string, error) {
	for _, name := range []string{"etc/subuid", "etc/subgid"} {
		all, err := entries(root, name)
		if err != nil {
			return "", err
		}
		for _, f := range all {
			first, err1 := strconv.ParseUint(f[1], 10, 32)
			count, err2 := strconv.ParseUint(f[2], 10, 32)
			if err1 == nil && err2 == nil && count > 0 && u.Overlaps(first, first+count-1) {
				return fmt.Sprintf("%d-%d are of user %s in /%s", first, first+count-1, f[0], name), nil
			}
		}
	}
	return "", nil
}

// handedOut: what useradd and its like give to new accounts. The defaults are shadow's.
func handedOut(root fs.FS, u farm.UIDs) (string, error) {
	bounds := map[string]uint64{"UID_MIN": 1000, "UID_MAX": 60000, "GID_MIN": 1000, "GID_MAX": 60000,
		"SUB_UID_MIN": 100000, "SUB_UID_MAX": 600100000, "SUB_GID_MIN": 100000, "SUB_GID_MAX": 600100000}
	all, err := lines(root, "etc/login.defs")
	if err != nil {
		return "", err
	}
	for _, line := range all {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		if _, known := bounds[f[0]]; !known {
			continue
		}
		if n, err := strconv.ParseUint(f[1], 0, 32); err == nil {
			bounds[f[0]] = n
		}
	}
	for _, of := range []string{"UID", "GID", "SUB_UID", "SUB_GID"} {
		if first, last := bounds[of+"_MIN"], bounds[of+"_MAX"]; u.Overlaps(first, last) {
			return fmt.Sprintf("new accounts get %d-%d: %s_MIN and %s_MAX of /etc/login.defs", first, last, of, of), nil
		}
	}
	return "", nil
}

// Running returns the user IDs of a range that processes have, by a host's /proc.
func Running(proc fs.FS, u farm.UIDs) (map[uint32]bool, error) {
	entries, err := fs.ReadDir(proc, ".")
	if err != nil {
		return nil, err
	}
	found := map[uint32]bool{}
	for _, e := range entries {
		if e.Name()[0] < '0' || e.Name()[0] > '9' {
			continue
		}
		text, err := fs.ReadFile(proc, e.Name()+"/status")
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), "\nUid:")
		ids, _, _ := strings.Cut(rest, "\n")
		for _, id := range strings.Fields(ids) { // real, effective, saved, of files
			if n, err := strconv.ParseUint(id, 10, 32); err == nil && u.Has(uint32(n)) {
				found[uint32(n)] = true
			}
		}
	}
	return found, nil
}
