package hostfacts

import "github.com/grange-project/grange/internal/farm"

// maxDevices bounds the network cards and NVMe controllers, virtual functions among them.
const maxDevices = 4096

// devices lists the network cards and NVMe controllers that sit in a slot. What has no device behind it is virtual.
func (r *reader) devices() []farm.HostDevice {
	bridges := r.bridgePorts()
	var out []farm.HostDevice
	for _, class := range []string{"sys/class/net", "sys/class/nvme"} {
		for _, name := range r.Names(class) {
			node, ok := r.Number(class+"/"+name+"/device/numa_node", 1<<10)
			if !ok || len(out) == maxDevices {
				continue
			}
			d := farm.HostDevice{Name: name, Bridge: bridges[name], Node: node, MTU: r.mtu(name)}
			if d.Bridge != "" {
				d.BridgeMTU = r.mtu(d.Bridge)
			}
			out = append(out, d)
		}
	}
	return out
}

func (r *reader) mtu(name string) int { return r.count("sys/class/net/"+name+"/mtu", 1<<30) }

// vhostNet reports whether vhost_net is loaded, or built in; "" where the kernel does not tell, as one without modules.
func (r *reader) vhostNet() farm.Switch {
	const dir = "sys/module/vhost_net/"
	if r.word(dir+"initstate") != "" || r.word(dir+"parameters/experimental_zcopytx") != "" {
		return "Y"
	}
	if r.word("sys/module/tun/initstate") != "" { // VMs have taps, by a module
		return "N"
	}
	return ""
}

// bridgePorts says of which bridge each card is a port.
func (r *reader) bridgePorts() map[string]string {
	out := map[string]string{}
	for _, bridge := range r.Names("sys/class/net") {
		for _, port := range r.Names("sys/class/net/" + bridge + "/brif") {
			out[port] = bridge
		}
	}
	return out
}
