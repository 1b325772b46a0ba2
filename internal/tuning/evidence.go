package tuning

// Documents that several rules rest on. Each rule says what it takes from them.

const cernBlog = "CERN, OpenStack in Production, "

func cernTopology(says string) Source {
	return Source{cernBlog + "\"OpenStack CPU topology for High Throughput Computing\", 1 August 2015",
		"http://openstack-in-production.blogspot.fr/2015/08/openstack-cpu-topology-for-high.html", says}
}

func cernEPTAndKSM(says string) Source {
	return Source{cernBlog + "\"EPT and KSM for High Throughput Computing\", 2 August 2015",
		"http://openstack-in-production.blogspot.com/2015/08/ept-and-ksm-for-high-throughput.html", says}
}

func cernPinning(says string) Source {
	return Source{cernBlog + "\"NUMA and CPU Pinning in High Throughput Computing\", 3 August 2015",
		"http://openstack-in-production.blogspot.com/2015/08/numa-and-cpu-pinning-in-high-throughput.html", says}
}

func cernSummary(says string) Source {
	return Source{cernBlog + "\"Tuning hypervisors for High Throughput Computing\", 5 August 2015",
		"http://openstack-in-production.blogspot.com/2015/08/kvm-and-hyper-v-comparison-for-high.html", says}
}

func cernHugePages(says string) Source {
	return Source{cernBlog + "\"EPT, Huge Pages and Benchmarking\", 26 September 2015",
		"http://openstack-in-production.blogspot.com/2015/", says}
}

func cernTier0(says string) Source {
	return Source{"CERN, \"Tier-0 Resources\", WLCG Management Board, 14 July 2015", "", says}
}

// kernelDoc is a page of the kernel's documentation: "admin-guide/mm/ksm".
func kernelDoc(page, says string) Source {
	return Source{"Linux kernel documentation, " + page, "https://docs.kernel.org/" + page + ".html", says}
}
