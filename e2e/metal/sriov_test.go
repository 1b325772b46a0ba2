package main

import (
	"strings"
	"testing"

	"github.com/grange-project/grange/e2e/metal/metallab"
)

// cardOfFunctions is an Intel card with SR-IOV, and an IOMMU.
var cardOfFunctions = []string{"-device", "amd-iommu", "-device", "pcie-root-port,id=root1,slot=1", "-netdev",
	"user,id=functions", "-device", "igb,bus=root1,netdev=functions,romfile="}

// TestSRIOV gives a job's VM a function of a card, in which the guest's own driver finds the address of its lease.
func TestSRIOV(t *testing.T) {
	h := withDebian(t, metallab.Options{}, "packages = [\"linux-image-amd64\"]\n")
	run(t, h, "sync")
	h.PowerLoss()
	if err := h.Boot(t.Context(), cardOfFunctions...); err != nil {
		t.Fatal(err)
	}
	card := run(t, h, `card=$(basename $(dirname $(dirname $(ls /sys/class/net/*/device/sriov_numvfs))))
modprobe vfio-pci
echo 2 >/sys/class/net/$card/device/sriov_numvfs
udevadm settle
for vf in /sys/class/net/$card/device/virtfn*; do
	echo vfio-pci >$vf/driver_override
	[ ! -e $vf/driver ] || basename $(readlink $vf) >$vf/driver/unbind
	basename $(readlink $vf) >/sys/bus/pci/drivers_probe
done
ip link set $card up
cat >>/etc/grange/agent.toml <<END
[network]
sriov = ["$card"]
[networks.fast]
network = "sriov:$card"
addresses = ["10.0.2.100-10.0.2.101/24"]
gateways = ["10.0.2.2"]
host_names = "fast-*"
unfiltered = true
[[policy]]
name = "fast"
networks = ["fast"]
END
sed -i '1i boot_timeout = "15m"' /etc/grange/agent.toml
systemctl restart grange-agent
echo $card`)
	before := run(t, h, "ip link show dev "+card+"; ls -ln /dev/vfio")
	got := run(t, h, `grange exec --image debian --memory 1G --network fast -- sh -c '
card=$(basename $(ls -d /sys/class/net/*/device | cut -d/ -f5))
basename $(readlink /sys/class/net/$card/device/driver)
ip -brief -4 address show dev $card
echo' 2>/root/progress || cat /root/progress`)
	if !strings.HasPrefix(got, "igbvf\n") || !strings.Contains(got, "10.0.2.100/24") {
		t.Errorf("a job with a function of %s: %s", card, got)
	}
	run(t, h, "grange image remove debian")
	nothingLeft(t, h)
	after := run(t, h, "ip link show dev "+card+"; ls -ln /dev/vfio")
	if t.Log(got); before != after {
		t.Errorf("the card before:\n%s\nand after:\n%s", before, after)
	}
}
