package network_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/network"
	"github.com/grange-project/grange/internal/network/networktest"
)

// TestSRIOV is on a card whose functions are in a /sys that the test has written. TestSRIOV of e2e/metal has a card.
func TestSRIOV(t *testing.T) {
	networktest.Run(t, networktest.Lab{Network: "sriov:eno2", Setup: card, Begin: functions,
		Invalid:  []farm.Network{"sriov", "sriov:a/b", "sriov:0123456789abcdef"},
		Absent:   []farm.Network{"sriov:lo", "sriov:eno9", "sriov:eno3"},
		Settings: network.Settings{Host: farm.HostNetworks{SRIOV: []string{"eno2", "eno3", "eno9"}}},
		Card:     hyper.Card{Type: hyper.FunctionCard, Source: "0000:01:10.1", MAC: networktest.MAC}})
}

// functions gives the card eno2 five of them, the first of which the host keeps for itself; eno3 has none.
func functions(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""))
	must(unix.Mount("tmpfs", "/sys", "tmpfs", 0, ""))
	must(os.MkdirAll("/sys/class/net/eno3/device", 0o755))
	must(os.MkdirAll("/sys/class/net/eno2/device", 0o755))
	for n := range 5 {
		address := fmt.Sprintf("0000:01:10.%d", n)
		device := filepath.Join("/sys/bus/pci/devices", address)
		group := fmt.Sprint("/sys/kernel/iommu_groups/", 90000+n)
		must(os.MkdirAll(device, 0o755))
		must(os.MkdirAll(filepath.Join(group, "devices", address), 0o755))
		must(os.Symlink(group, filepath.Join(device, "iommu_group")))
		driver := "vfio-pci"
		if n == 0 {
			driver = "igbvf"
		}
		must(os.Symlink("/sys/bus/pci/drivers/"+driver, filepath.Join(device, "driver")))
		must(os.Symlink(device, fmt.Sprintf("/sys/class/net/eno2/device/virtfn%d", n)))
	}
}

// TestSRIOVTaken: what others have is not taken, and without an IOMMU there is nothing to give.
func TestSRIOVTaken(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes a network namespace")
	}
	runtime.LockOSThread() // and the namespaces end with the thread
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	for _, line := range card {
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
	functions(t)
	k, s := network.Kinds["sriov"], network.Settings{Host: farm.HostNetworks{SRIOV: []string{"eno2"}}}
	prepare := func(name string) error {
		_, err := k.Prepare(t.Context(), network.VM{Name: name, Network: "sriov:eno2"}, s)
		return err
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		if err := prepare(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := prepare("e"); !farm.IsCode(err, farm.CodeNoRoom) {
		t.Errorf("a fifth VM: %v", err)
	}
	if err := k.Release(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove("/sys/bus/pci/devices/0000:01:10.2/iommu_group"); err != nil {
		t.Fatal(err)
	}
	if err := prepare("e"); !farm.IsCode(err, farm.CodeNotCarried) {
		t.Errorf("without an IOMMU: %v", err)
	}
}
