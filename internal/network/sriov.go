package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// sriov is a card of the host that gives each of its VMs a function of its own (SR-IOV): frames pass the host by, and
// its filters. The card keeps a VM to its MAC. Functions for VMs are those that the host has given to vfio-pci. Whose
// one is, is an alternative name of the card: the kernel has it for as long as it has the card, and people see it by
// `ip link show`.
type sriov struct{ plain }

// functionFile begins the names of the files of a card's functions, below its device.
const functionFile = "virtfn"

// functions keeps two VMs from one function, from the look at what is free to the name.
var functions sync.Mutex

func (sriov) Check(n farm.Network, s Settings) error {
	card := n.Of()
	if !slices.Contains(s.Host.SRIOV, card) {
		return notCarried(n, fmt.Sprintf("[network] sriov of its agent.toml does not name %s", card),
			"name the card there")
	}
	if _, err := os.Stat(cardPath(card)); err != nil {
		return notCarried(n, "it has no card "+card, "correct [network] sriov of its agent.toml")
	}
	all, err := functionsOf(card)
	if err != nil || !slices.ContainsFunc(all, function.forVMs) {
		return notCarried(n, fmt.Sprintf("of %s of card %s, vfio-pci has none",
			farm.Count(len(all), "virtual function"), card), "give it some at boot: docs/guide/agent.md, SR-IOV")
	}
	return nil
}

func (k sriov) Prepare(ctx context.Context, vm VM, s Settings) (hyper.Card, error) {
	if err := k.Check(vm.Network, s); err != nil {
		return hyper.Card{}, err
	}
	functions.Lock()
	defer functions.Unlock()
	card := vm.Network.Of()
	all, err := functionsOf(card)
	if err != nil {
		return hyper.Card{}, err
	}
	owners, err := ownersOf(ctx, card)
	if err != nil {
		return hyper.Card{}, err
	}
	i := choose(all, owners, vm.Name)
	if i < 0 {
		return hyper.Card{}, &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom,
			Message: fmt.Sprintf("all %s of card %s are taken", farm.Count(len(all), "virtual function"), card),
			Hint:    fmt.Sprintf("wait for the end of a VM, or make more of them: `ip link show dev %s`", card)}
	}
	f := all[i]
	if err := f.isolated(); err != nil {
		return hyper.Card{}, notCarried(vm.Network, err.Error(), "turn the IOMMU on, in the firmware and by the kernel's "+
			"parameter intel_iommu=on or amd_iommu=on")
	}
	if owners[f.number] == "" {
		name := ownerName(f.number, vm.Name)
		if _, err := ip(ctx, "link", "property", "add", "dev", card, "altname", name); err != nil {
			return hyper.Card{}, err
		}
	}
	return hyper.Card{Type: hyper.FunctionCard, Source: f.address, MAC: vm.MAC}, nil
}

// choose returns the index of the function of a machine: the one that it has, or a free one; -1: all are taken.
func choose(all []function, owners map[int]string, machine string) int {
	if i := slices.IndexFunc(all, func(f function) bool { return owners[f.number] == machine }); i >= 0 {
		return i
	}
	return slices.IndexFunc(all, func(f function) bool {
		return owners[f.number] == "" && f.forVMs() && !f.busy()
	})
}

// Release takes the function of a machine back.
func (k sriov) Release(ctx context.Context, name string) error {
	functions.Lock()
	defer functions.Unlock()
	cards, err := filepath.Glob(cardPath("*/device/" + functionFile + "0"))
	for _, path := range cards {
		card := filepath.Base(filepath.Dir(filepath.Dir(path)))
		err = errors.Join(err, k.giveBack(ctx, card, name))
	}
	return err
}

func (k sriov) giveBack(ctx context.Context, card, machine string) error {
	owners, err := ownersOf(ctx, card)
	if err != nil {
		return err
	}
	all, err := functionsOf(card)
	for _, f := range all {
		if owners[f.number] != machine {
			continue
		}
		if failed := f.reclaim(); failed != nil {
			err = errors.Join(err, failed) // it stays the machine's: nobody gets one that somebody else may open
			continue
		}
		_, failed := ip(ctx, "link", "property", "del", "dev", card, "altname", ownerName(f.number, machine))
		err = errors.Join(err, failed)
	}
	return err
}

const ownerPrefix = "vf"

func ownerName(number int, machine string) string {
	return fmt.Sprintf("%s%d-%s", ownerPrefix, number, machine)
}

// ownersOf are the machines that functions of a card are of, by their numbers.
func ownersOf(ctx context.Context, card string) (map[int]string, error) {
	links, err := linksOf(ctx, "dev", card)
	if err != nil {
		return nil, err
	}
	owners := map[int]string{}
	for _, l := range links {
		for _, name := range l.Others {
			rest, ours := strings.CutPrefix(name, ownerPrefix)
			number, machine, named := strings.Cut(rest, "-")
			if n, err := strconv.Atoi(number); ours && named && err == nil {
				owners[n] = machine
			}
		}
	}
	return owners, nil
}

// function is a virtual function of a card.
type function struct {
	number  int
	address string // on the PCI bus, as 0000:01:10.0
}

const (
	cardDir = "/sys/class/net"
	pciDir  = "/sys/bus/pci/devices"
	vfio    = "vfio-pci"
)

func cardPath(card string) string { return filepath.Join(cardDir, card) }

func functionsOf(card string) (all []function, err error) {
	paths, err := filepath.Glob(filepath.Join(cardPath(card), "device", functionFile+"*"))
	for _, path := range paths {
		to, err := os.Readlink(path)
		n, bad := strconv.Atoi(strings.TrimPrefix(filepath.Base(path), functionFile))
		if err = errors.Join(err, bad); err != nil {
			return nil, err
		}
		all = append(all, function{n, filepath.Base(to)})
	}
	slices.SortFunc(all, func(a, b function) int { return a.number - b.number })
	return all, err
}

func (f function) path(name string) string { return filepath.Join(pciDir, f.address, name) }

// forVMs reports whether the host has given the function to VMs.
func (f function) forVMs() bool {
	driver, _ := os.Readlink(f.path("driver"))
	return filepath.Base(driver) == vfio
}

// group is the file of the function's IOMMU group, which QEMU opens.
func (f function) group() string {
	group, _ := hyper.Card{Source: f.address}.Group() // Prepare refuses one that has none
	return group
}

// busy reports whether somebody has the function open: a VM that is not ours.
func (f function) busy() bool {
	file, err := os.OpenFile(f.group(), os.O_RDWR, 0)
	if err == nil {
		file.Close()
	}
	return errors.Is(err, unix.EBUSY)
}

// reclaim has the function be root's, as before a VM had it.
func (f function) reclaim() error {
	err := os.Chown(f.group(), 0, 0)
	if errors.Is(err, os.ErrNotExist) { // vfio-pci has it no more
		return nil
	}
	return err
}

// isolated refuses a function that the IOMMU does not keep to the memory of its VM, alone.
func (f function) isolated() error {
	group, err := os.ReadDir(f.path("iommu_group/devices"))
	switch {
	case err != nil:
		return fmt.Errorf("no IOMMU is between function %s and the memory of the host", f.address)
	case len(group) > 1:
		return fmt.Errorf("function %s shares its IOMMU group with %s", f.address,
			farm.Count(len(group)-1, "other device"))
	}
	return nil
}
