package farm

// Codes of the link between hosts and servers, on which the other side acts.
const (
	CodeRevokedCert Code = "host-certificate-revoked"
	CodeOtherAgent  Code = "another-agent"
	CodeAgentOld    Code = "agent-too-old"
	CodeAgentNew    Code = "agent-too-new"
	CodeReportFirst Code = "report-first" // the server does not know the agent that asks yet
)
