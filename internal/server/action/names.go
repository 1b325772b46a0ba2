package action

import "github.com/grange-project/grange/internal/policy"

// Names in the audit log of actions that no user asks for. Hosts do them, or the server by itself; no role allows them.
const (
	EnrolHost  policy.Action = "host.enrol"
	RenewHost  policy.Action = "host.renew"
	SilentHost policy.Action = "host.silent" // it is not heard of
	BackHost   policy.Action = "host.back"   // it is again
	GoneVM     policy.Action = "vm.gone"     // its end; people ask for a deletion
	LostVM     policy.Action = "vm.lost"
	MovedVM    policy.Action = "vm.moved" // what came of a move

	StartSession policy.Action = "session.start" // somebody signed in
)

// Root is what tokens and the audit log call root on the server's own socket.
const Root = "root"
