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
	"github.com/grange-project/grange/internal/program"
)

// sriov is a card of the host that gives each of its VMs a function of its own (SR-IOV): frames pass the host by, and
// its filters. The card keeps a VM to its MAC. Whose a function is, is an alternative name of the card: the kernel has
// it for as long as it has the card, and people see it by `ip link show`.
type sriov struct {
	plain
	bind func(ctx context.Context, address, driver string) error
}

// functionFile begins the names of the files of a card's functions, below its device.
const functionFile = "virtfn"

// functions keeps two VMs from one function, from the look at what is free to the name.
var functions sync.Mutex

func (sriov) Check(n farm.Network, s Settings) error {
	card := n.Of()
	if !slices.Contains(s.Host.SRIOV, card) {
		return notCarried(n, fmt.Sprintf("[network] sriov of its agent.toml does not name %s", card), "name the card there")
	}
	if _, err := os.Stat(cardPath(card)); err != nil {
		return notCarried(n, "it has no card "+card, "correct [network] sriov of its agent.toml")
	}
	all, err := functionsOf(card)
	if err != nil || len(all) == 0 {
		return notCarried(n, fmt.Sprintf("card %s has no virtual functions", card),
			fmt.Sprintf("make some at boot: write their number to %s", filepath.Join(cardPath(card), "device/sriov_numvfs")))
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
	if err := k.bind(ctx, f.address, vfio); err != nil {
		return hyper.Card{}, notMade(err, "function "+f.address+" of card "+card+" is not taken from the host",
			"see `dmesg`, and whether a program of the host uses it", "install kmod on the host")
	}
	return hyper.Card{Type: hyper.FunctionCard, Source: f.address, MAC: vm.MAC}, nil
}

// choose returns the index of the function of a machine: the one that it has, or a free one; -1: all are taken.
func choose(all []function, owners map[int]string, machine string) int {
	if i := slices.IndexFunc(all, func(f function) bool { return owners[f.number] == machine }); i >= 0 {
		return i
	}
	return slices.IndexFunc(all, func(f function) bool { return owners[f.number] == "" && !f.used() })
}

// Release gives the function of a machine back to the host.
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
		if failed := k.bind(ctx, f.address, ""); failed != nil {
			err = errors.Join(err, failed) // it stays the machine's: nobody gets one that is in an unknown state
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
	pciDir  = "/sys/bus/pci"
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

func (f function) path(name string) string { return filepath.Join(pciDir, "devices", f.address, name) }

// used reports whether the host, or somebody else's VM, has the function.
func (f function) used() bool {
	if driver, _ := os.Readlink(f.path("driver")); filepath.Base(driver) == vfio {
		return true
	}
	flags, _ := filepath.Glob(f.path("net/*/flags"))
	for _, path := range flags {
		text, _ := os.ReadFile(path)
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 0, 32); err == nil && n&unix.IFF_UP != 0 {
			return true
		}
	}
	return false
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

// bindPCI gives a device to a driver; "": to the one that the kernel finds for it.
func bindPCI(ctx context.Context, address, driver string) error {
	if _, err := os.Stat(filepath.Join(pciDir, "drivers", driver)); driver != "" && err != nil {
		load := program.Call{Path: "modprobe", Args: []string{driver}, Limit: toolLimit}
		if _, err := program.Start(ctx, load); err != nil {
			return err
		}
	}
	device := filepath.Join(pciDir, "devices", address)
	bound := func() string {
		to, err := os.Readlink(filepath.Join(device, "driver"))
		if err != nil {
			return ""
		}
		return filepath.Base(to)
	}
	if is := bound(); is == driver && is != "" || driver == "" && is != vfio {
		return nil
	}
	if err := write(filepath.Join(device, "driver_override"), driver+"\n"); err != nil {
		return err
	}
	if bound() != "" {
		if err := write(filepath.Join(device, "driver/unbind"), address); err != nil {
			return err
		}
	}
	if err := write(filepath.Join(pciDir, "drivers_probe"), address); err != nil {
		return err
	}
	if is := bound(); driver != "" && is != driver {
		return fmt.Errorf("%s has driver %q, and not %s", address, is, driver)
	}
	return nil
}

// write writes to a file of the kernel's.
func write(path, text string) error { return os.WriteFile(path, []byte(text), 0) }
