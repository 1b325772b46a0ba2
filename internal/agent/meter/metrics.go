// Package meter is what an agent exports of its host: what it counts itself, and what it and the kernel know anyway,
// which is read at scrapes. docs/reference/metrics.md explains each name.
package meter

import "github.com/grange-project/grange/internal/metrics"

// short makes the table below readable.
const (
	counter   = metrics.Counter
	gauge     = metrics.Gauge
	histogram = metrics.Histogram
)

// What the agent counts, or is.
var (
	agentInfo = metrics.Metric{Name: "grange_agent_info", Type: gauge, Labels: []string{"version", "accelerator"},
		Help: "1, with the agent's release and what VMs run on: kvm, tcg or unknown."}
	agentReady = metrics.Metric{Name: "grange_agent_ready", Type: gauge,
		Help: "Whether the agent knows what runs on its host, which it has to before anything starts."}
	takesVMs = metrics.Metric{Name: "grange_agent_takes_vms", Type: gauge,
		Help: "Whether the host takes new VMs: it is not drained, and has its minimum of disk and memory."}
	backOffs = metrics.Metric{Name: "grange_agent_back_offs", Type: gauge, Labels: []string{"kind"},
		Help: "Images, users or the host itself (kind) whose VMs keep failing to start, and that are left alone for now."}
	vmsByState = metrics.Metric{Name: "grange_agent_vms", Type: gauge, Labels: []string{"kind", "state"},
		Help: "VMs of this host by kind (job, worker, cloud) and state."}
	vmsAlarming = metrics.Metric{Name: "grange_agent_vms_alarming", Type: gauge, Labels: []string{"what"},
		Help: "VMs whose guests report, for the last minutes, that CPUs waited for disks 30 % of the time or more " +
			"(io-wait), or that 10 pages a second or more came back from swap (swapping)."}
	vmsReporting = metrics.Metric{Name: "grange_agent_vms_reporting", Type: gauge,
		Help: "VMs whose guests report their load. Others are not among those that alarm."}
	phases = metrics.Metric{Name: "grange_agent_start_phase_seconds", Type: histogram, Labels: []string{"phase"},
		Help: "How long each phase of a VM's start took: image, grant (which includes waiting for room), disk, define, " +
			"boot, guest; and cloud, from define to running, of a cloud VM."}
	starts = metrics.Metric{Name: "grange_agent_starts_total", Type: counter, Labels: []string{"kind", "result"},
		Help: "Starts of VMs by kind and result: started, failed, or left, where the caller had gone meanwhile."}
	failures = metrics.Metric{Name: "grange_agent_failures_total", Type: counter, Labels: []string{"code"},
		Help: "Jobs and starts of cloud VMs that failed, by the code of the error, as docs/errors.md has it."}
	jobs = metrics.Metric{Name: "grange_agent_jobs_total", Type: counter, Labels: []string{"result"},
		Help: "Jobs that ran, by result: ok, failed, or failed-at-once, within 30 seconds of their start."}
	daemonUp = metrics.Metric{Name: "grange_agent_hypervisor_up", Type: gauge,
		Help: "Whether libvirt's daemon answers."}
	daemonAnswer = metrics.Metric{Name: "grange_agent_hypervisor_answer_seconds", Type: gauge,
		Help: "How long libvirt's daemon took for its last answer that needs to know what the host can do."}
	daemonStuck = metrics.Metric{Name: "grange_agent_hypervisor_stuck_vms", Type: gauge,
		Help: "Machines that have ended, and that libvirt's daemon does not let go."}
	linkUp = metrics.Metric{Name: "grange_agent_link_up", Type: gauge,
		Help: "Whether the link to the server works. Not exported on a host that has no server."}
	gateways = metrics.Metric{Name: "grange_agent_bound_directories", Type: gauge, Labels: []string{"gateway"},
		Help: "Directories of the host in VMs now, by gateway: fuse, virtiofs or sftp."}
	services = metrics.Metric{Name: "grange_agent_services", Type: gauge,
		Help: "Services of the host that VMs are connected to now, counted once for each VM."}
)

// Of the ledger and of images.
var (
	cpus = metrics.Metric{Name: "grange_agent_cpus", Type: gauge, Labels: []string{"state"},
		Help: "Threads of the host by state: online, reserved for the host itself, free."}
	nodeMemory = metrics.Metric{Name: "grange_agent_node_memory_bytes", Type: gauge, Labels: []string{"node", "state"},
		Help: "Memory of each NUMA node without huge pages: total, as the kernel says; free, of what VMs may have."}
	nodePages = metrics.Metric{Name: "grange_agent_node_huge_pages", Type: gauge,
		Labels: []string{"node", "size", "state"},
		Help:   "Huge pages of each node by size in bytes: total, and free of what VMs may have."}
	waiting = metrics.Metric{Name: "grange_agent_waiting", Type: gauge, Help: "Jobs that wait for room on this host."}
	disks   = metrics.Metric{Name: "grange_agent_disk_bytes", Type: gauge, Labels: []string{"state"},
		Help: "Space for disks of VMs: total; free, neither used nor promised; short, promised to VMs beyond what there is."}
	images = metrics.Metric{Name: "grange_agent_images", Type: gauge, Labels: []string{"kind"},
		Help: "Named images on this host by kind: kernel, disk or root."}
	imageBytes = metrics.Metric{Name: "grange_agent_image_bytes", Type: gauge,
		Help: "What the named images take, each counted once."}
)

// Of the kernel.
var (
	cpuSeconds = metrics.Metric{Name: "grange_host_cpu_seconds_total", Type: counter, Labels: []string{"mode"},
		Help: "Time of the host's CPUs by mode: user, nice, system, guest, idle, iowait, steal. Time in guests is not " +
			"part of user here."}
	memory = metrics.Metric{Name: "grange_host_memory_bytes", Type: gauge, Labels: []string{"state"},
		Help: "Memory of the host: total, free, available, as the kernel says."}
	swap = metrics.Metric{Name: "grange_host_swap_bytes", Type: gauge, Labels: []string{"state"},
		Help: "Swap of the host: total, used."}
	swapPages = metrics.Metric{Name: "grange_host_swap_pages_total", Type: counter, Labels: []string{"direction"},
		Help: "Pages that went to swap (out), and that came back (in)."}
	pressure = metrics.Metric{Name: "grange_host_pressure_seconds_total", Type: counter,
		Labels: []string{"resource", "tasks"},
		Help:   "Time in which some or all (full) tasks waited for cpu, memory or io. Needs PSI in the kernel."}
	ksmState = metrics.Metric{Name: "grange_host_ksm_state", Type: gauge,
		Help: "What KSM does: 0 nothing, 1 it merges pages, 2 it has undone all. Not exported without KSM."}
	ksmPages = metrics.Metric{Name: "grange_host_ksm_pages", Type: gauge, Labels: []string{"state"},
		Help: "Pages of KSM: shared, which are in use; sharing, which are saved by that; unshared, looked at in vain."}
)

// Of each VM, where [metrics] vms is on: their names are new ones all the time.
var (
	vmCPU = metrics.Metric{Name: "grange_vm_cpu_seconds_total", Type: counter, Labels: []string{"vm", "mode"},
		Help: "CPU time of a VM's QEMU by mode: guest, user, system. Time in the guest is not part of user here."}
	vmResident = metrics.Metric{Name: "grange_vm_resident_bytes", Type: gauge, Labels: []string{"vm"},
		Help: "Memory of a VM's QEMU that is not in huge pages."}
	vmSwap = metrics.Metric{Name: "grange_vm_swap_bytes", Type: gauge, Labels: []string{"vm"},
		Help: "Memory of a VM's QEMU that is in the host's swap."}
	vmWait = metrics.Metric{Name: "grange_vm_guest_io_wait_ratio", Type: gauge, Labels: []string{"vm"},
		Help: "Part of the last five minutes in which the guest's CPUs waited for disks, as it reports."}
	vmSwapPages = metrics.Metric{Name: "grange_vm_guest_swap_pages_total", Type: counter,
		Labels: []string{"vm", "direction"},
		Help:   "Pages that the guest has put into its own swap (out), and fetched (in), as it reports."}
)

// OfVMs is how the names begin that have a series for each VM.
const OfVMs = "grange_vm_"
