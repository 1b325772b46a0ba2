package nwfilter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// VM is a machine whose process is there.
type VM struct {
	PID int
	Filter
}

// mu is held while rules change: nothing is loaded for a VM that is released meanwhile. Another agent may change them
// at the same time.
var mu sync.Mutex

// Fence has the filter of a VM where its tap is, and proves that it is there. Errors: farm.CodeNoFilter.
func Fence(ctx context.Context, vm VM) error {
	mu.Lock()
	defer mu.Unlock()
	t, err := ready(vm)
	if err == nil && vm.Groups != nil {
		err = CheckGroups(ctx)
	}
	if err == nil {
		err = load(ctx, loaded{vm.Filter, t.index})
	}
	if err == nil {
		err = prove(ctx, vm.Filter, t.index)
	}
	if err != nil {
		return &farm.Error{Kind: farm.Denied, Code: farm.CodeNoFilter,
			Message: "the VM's network cannot be filtered: " + err.Error(),
			Hint:    "install nftables on the host, and see that `nft list tables bridge` works there"}
	}
	return nil
}

// Restore has the filters of these VMs where they are missing or differ, in one piece, and removes those of taps that
// have gone. A VM whose process ends just now is left out.
func Restore(ctx context.Context, vms []VM, failed func(index int, err error)) {
	mu.Lock()
	defer mu.Unlock()
	var all []loaded
	for i, vm := range vms {
		if vm.Closed && len(vm.Local) == 0 { // it runs since before that was refused, and is filtered otherwise
			failed(i, errors.New("its network is closed, and it has no leased address: what is local is not known"))
			vm.Closed = false
		}
		t, err := ready(vm)
		switch {
		case err == nil:
			all = append(all, loaded{vm.Filter, t.index})
		case running(vm.PID):
			failed(i, err)
		}
	}
	if err := load(ctx, all...); err != nil && len(vms) > 0 {
		failed(0, err)
		loadEach(ctx, all)
	}
}

// loadEach loads what can be of filters that cannot be loaded together. A VM that cannot be held to its security groups
// any more sends nothing, and so answers nobody.
func loadEach(ctx context.Context, all []loaded) {
	if !slices.ContainsFunc(all, func(l loaded) bool { return l.Groups != nil }) {
		return
	}
	for _, l := range all {
		if load(ctx, l) != nil && l.Groups != nil {
			l.Shut, l.Groups = true, nil
			load(ctx, l) // its error is that of the first try
		}
	}
}

func running(pid int) bool {
	_, err := TapsHeld(pid)
	return err == nil
}

// Release removes the filters of a machine, and what is shared with the last one. A machine without any is no error.
func Release(ctx context.Context, machine string) error {
	mu.Lock()
	defer mu.Unlock()
	return remove(ctx, func(c chain) bool { return c.machine == machine })
}

// ready finds a VM's tap, and sets its port.
func ready(vm VM) (tap, error) {
	if err := vm.check(); err != nil {
		return tap{}, err
	}
	t, err := tapOf(vm.PID, vm.MAC)
	if err != nil {
		return tap{}, err
	}
	return t, setPort(t.index, vm.Isolated)
}

// loaded is a filter on a tap.
type loaded struct {
	Filter
	index int
}

// has reports whether a chain is one of its.
func (l loaded) has(c chain) bool {
	if c.machine != l.Machine || c.index != l.index {
		return false
	}
	switch c.kind {
	case closedKind:
		return l.Closed
	case groupInKind, groupOutKind:
		return l.Groups != nil
	}
	return true
}

// load loads filters, and removes others of the same machines, and those of taps that have gone: all or nothing.
func load(ctx context.Context, all ...loaded) error {
	if len(all) == 0 {
		return remove(ctx, func(c chain) bool { return !exists(c.index) })
	}
	for try := 1; ; try++ {
		there, err := list(ctx)
		if err != nil {
			return err
		}
		if _, err = nft(ctx, loading(there.chains, all), "-f", "-"); err == nil {
			there.tidy(ctx, func(c chain) bool { return goes(c, all) })
		}
		if err == nil || try == tries {
			return err
		}
	}
}

// loading is what nft is to load for all, and to remove.
func loading(chains []chain, all []loaded) string {
	var b strings.Builder
	b.WriteString(shared)
	if slices.ContainsFunc(all, func(l loaded) bool { return l.Groups != nil }) {
		b.WriteString(groupsShared)
	}
	for _, l := range all {
		b.WriteString(l.rules(l.index))
	}
	for _, c := range chains {
		if goes(c, all) {
			b.WriteString(c.removal())
		}
	}
	return b.String()
}

// goes reports whether a chain is none of those that are loaded, and of a machine of theirs, or of a tap that has gone.
func goes(c chain, all []loaded) bool {
	i := slices.IndexFunc(all, func(l loaded) bool { return l.Machine == c.machine })
	if i < 0 {
		return !exists(c.index)
	}
	return !all[i].has(c)
}

// tidy removes what VMs with security groups have in common when none of them is left. The kernel refuses that where
// another agent's has come meanwhile.
func (t tables) tidy(ctx context.Context, gone func(chain) bool) {
	if t.groups && !slices.ContainsFunc(t.chains, func(c chain) bool { return c.ofGroups() && !gone(c) }) {
		nft(ctx, groupsUnshared, "-f", "-")
	}
}

func (c chain) ofGroups() bool { return c.kind == groupInKind || c.kind == groupOutKind }

// tries are how often rules are read and changed when that fails: somebody else may have changed them in between.
const tries = 3

// remove removes chains, and what is shared when no VM is left.
func remove(ctx context.Context, which func(chain) bool) error {
	for try := 1; ; try++ {
		there, err := list(ctx)
		if program.Missing(err) {
			return nil // there were never any
		} else if err != nil {
			return err
		}
		var b strings.Builder
		for _, c := range there.chains {
			if which(c) {
				b.WriteString(c.removal())
			}
		}
		if b.Len() > 0 {
			if _, err = nft(ctx, b.String(), "-f", "-"); err != nil && try < tries {
				continue
			} else if err != nil {
				return err
			}
		}
		there.tidy(ctx, which)
		if there.table && !slices.ContainsFunc(there.chains, func(c chain) bool { return !which(c) }) {
			nft(ctx, unshared, "-f", "-") // refused where another agent's VM has come meanwhile
		}
		return nil
	}
}

// prove reads back that frames of a tap go to the VM's filter, and what it lets pass.
func prove(ctx context.Context, f Filter, index int) error {
	name := chainName(sendKind, index, f.Machine)
	senders, err := nft(ctx, "", "list", "map", "bridge", Table, "senders")
	if err != nil {
		return err
	}
	rules, err := nft(ctx, "", "list", "chain", "bridge", Table, name)
	if err != nil {
		return err
	}
	if !strings.Contains(string(senders), "goto "+name) ||
		!strings.Contains(string(rules), "ether saddr != "+f.MAC.String()) {
		return errNotListed
	}
	if f.Groups == nil {
		return nil
	}
	for _, kind := range []string{groupInKind, groupOutKind} {
		chains, err := nft(ctx, "", "list", "map", "bridge", Table, kind)
		if err != nil {
			return err
		}
		if !strings.Contains(string(chains), "goto "+chainName(kind, index, f.Machine)) {
			return errNotListed
		}
	}
	return nil
}

var errNotListed = errors.New("nft has loaded the rules, and does not list them")

// chain is that of a VM.
type chain struct {
	kind    string
	index   int
	machine string
}

// tables are what there is of ours.
type tables struct {
	chains []chain // of VMs
	table  bool    // there is our table,
	groups bool    // and in it what VMs with security groups have in common
}

func list(ctx context.Context) (tables, error) {
	text, err := nft(ctx, "", "list", "chains", "bridge")
	if err != nil {
		return tables{}, err
	}
	return parseChains(string(text)), nil
}

// parseChains reads what nft lists of all tables of the family.
func parseChains(text string) (t tables) {
	ours := false
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 4 && words[0] == "table":
			ours = words[1] == "bridge" && words[2] == Table
			t.table = t.table || ours
		case ours && len(words) >= 3 && words[0] == "chain":
			if c, ok := parseChain(words[1]); ok {
				t.chains = append(t.chains, c)
			}
			t.groups = t.groups || words[1] == "group_send"
		}
	}
	return t
}

func parseChain(name string) (chain, bool) {
	words := strings.SplitN(name, "_", 3)
	if len(words) < 3 || !slices.Contains([]string{sendKind, closedKind, groupInKind, groupOutKind}, words[0]) {
		return chain{}, false
	}
	index, err := strconv.Atoi(words[1])
	return chain{words[0], index, words[2]}, err == nil
}

// removal is what nft is to load so that a chain is gone, and what goes on to it.
func (c chain) removal() string {
	var b strings.Builder
	name := chainName(c.kind, c.index, c.machine)
	// Somebody may have removed it alone.
	const element = "add element %[1]s { %[2]s }\ndelete element %[1]s { %[2]s }\n"
	drop := func(what, of string) { fmt.Fprintf(&b, element, "bridge "+Table+" "+what, of) }
	to := fmt.Sprintf("%d : goto %s", c.index, name)
	switch c.kind {
	case closedKind:
		drop("closed_senders", to)
	case groupInKind, groupOutKind:
		drop(c.kind, to)
		drop("group_taps", strconv.Itoa(c.index))
	default:
		drop("senders", to)
		b.WriteString(pastBridge)
		fmt.Fprintf(&b, element, "inet grange_taps taps", strconv.Itoa(c.index))
		drop("taps", strconv.Itoa(c.index))
		drop("served", strconv.Itoa(c.index))
	}
	fmt.Fprintf(&b, "flush chain bridge %[1]s %[2]s\ndelete chain bridge %[1]s %[2]s\n", Table, name)
	return b.String()
}

func exists(index int) bool {
	_, err := net.InterfaceByIndex(index)
	return err == nil
}

const nftLimit = 10 * time.Second // Release has 30 s, and links to remove after the filters

func nft(ctx context.Context, input string, args ...string) ([]byte, error) {
	return program.Start(ctx, program.Call{Path: "nft", Args: args, Input: []byte(input), Limit: nftLimit})
}
