package tuning

// Documents that several rules about VMs rest on; see evidence.go.

func cernCPUModel(says string) Source {
	return Source{cernBlog + "\"CPU Model Selection for High Throughput Computing\", 2 August 2015",
		"https://openstack-in-production.blogspot.com/2015/08/cpu-model-selection-for-high-throughput.html", says}
}

// qemuDoc is a page of QEMU's manual: "system/qemu-cpu-models".
func qemuDoc(page, says string) Source {
	return Source{"QEMU documentation, " + page, "https://www.qemu.org/docs/master/" + page + ".html", says}
}

// libvirtXML is a section of libvirt's description of the domain XML, by the name of its anchor: "cpu-tuning".
func libvirtXML(section, says string) Source {
	return Source{"libvirt, Domain XML format, " + section, "https://libvirt.org/formatdomain.html#" + section, says}
}

// redHatTuning is a section of Red Hat's tuning guide: "NUMA", with the end of its address.
func redHatTuning(section, page, says string) Source {
	return Source{"Red Hat Enterprise Linux 7, Virtualization Tuning and Optimization Guide, " + section,
		"https://docs.redhat.com/en/documentation/red_hat_enterprise_linux/7/html/virtualization_tuning_and_optimization_guide/" + page, says}
}
