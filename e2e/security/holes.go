package main

// attacks are all attacks, by hole. Each hole's are in a file of its own.
var attacks = []attack{
	{"C1", "an account that pretends to be QEMU has no file, directory or socket of root's removed, and is not ended " +
		"itself", pretenders},
	{"H1", "who pretends to be the QEMU of an own VM is not taken for it, also by an agent that was restarted",
		fakeOfOwnVM},
	{"H1", "who pretends to be the QEMU of another account's VM is not taken for it", fakeOfOthersVM},
	{"H2", "a bind of /proc does not give a guest the memory of its wrapper", bindOfProc},
	{"H2", "a bind of / does not show the host's processes, kernel and devices", bindOfAll},
	{"H2", "a bind of root's gets no set-ID files and no devices", rootsBind},
	{"H3", "an administrator of a cell does not take over a host of another one by a join token", foreignToken},
	{"H3", "who has a join token for many hosts and the machine-id of one that runs does not take it over", livingHost},
	{"H4", "a host and a user go on while their address sends wrong tokens and unknown join tokens", floodedHost},
	{"H5", "impossible disks that one account asks for close the host to nobody else", impossibleDisks},
	{"H5", "guests of one account that never come up, of several images, close the host to nobody else", silentGuests},
	{"H6", "an LSF job with a program for the host beside it is refused at submission", lsfBesideTheJob},
	{"H6", "checks call a host broken on which the batch system runs users' programs beside their VMs", openHosts},
	{"H7", "a farm file with `vlan` beside `bridge`, or `closed` without `addresses`, is refused: no host does that",
		unkeptNetworks},
	{"M1", "libvirtd does not come up where it would run QEMU as root", rootQEMU},
	{"M1", "who breaks out of a VM has nothing of another one: no disk, socket, monitor or memory, and nothing of " +
		"root's", brokenOut},
	{"M2", "a guest with the network user reaches hosts further away, and neither its own nor its neighbours",
		reachableHost},
	{"M3", "a guest that says without end that it has come up gets its job a few times", chattyGuest},
	{"M4", "connections that show nobody make room, and a host goes on beside them", idleCrowd},
	{"M4", "of a header without a caller little is read", longHeader},
	{"M4", "a user has a bounded number of watches", manyWatches},
	{"M5", "a host that reports another host's VM is sent nothing of it", foreignVM},
	{"M6", "what a user calls a job moves no cursor of root's", hostileNames},
	{"M7", "other accounts of a host do not read what a cloud VM wrote to its console", readConsoles},
	{"M8", "one account does not take all CPUs of a host", allCPUs},
	{"M8", "one account does not take all disk space of a host", allDisks},
	{"M9", "an authority does not make itself another one's user, and a certificate that was revoked is refused",
		weakAuthority},
	{"M10", "a backup of the server's database does not make a server of the fleet", stolenBackup},
	{"M10", "after a rotation, who has the old CA's key and a host's old certificate is neither a server nor a host " +
		"of the fleet", retiredCA},
	{"M11", "a caller who comes again after a restart of the agent gets no more than was allowed", rejoinWithMore},
	{"S2", "root and other accounts are served while an account connects to the agent and hangs up without end",
		floodedAgent},
	{"S2", "root and other accounts are served while an account keeps connections to the agent half open",
		crowdedAgent},
	{"S2b", "root and users are served while an account connects to the server and hangs up without end",
		floodedServer},
	{"S2b", "root and users are served while an account keeps connections to the server half open", crowdedServer},
	{"names", "a rule that denies by name holds for users whom only a directory service knows", deniedByName},
}

// roles are what this program does under another account, by name; see account.act.
var roles = map[string]func(args []string) error{
	"pretend-qemu": pretendQEMU,
	"ask":          askForJob,
	"serve":        serve,
	"reach":        reachFor,
	"flood":        flood,
}
