"""Launch attempts on nodes that do not see the service's home: fetch what ranks read, and send what they write."""
