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
			out = append(out, farm.HostDevice{Name: name, Bridge: bridges[name], Node: node})
		}
	}
	return out
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
