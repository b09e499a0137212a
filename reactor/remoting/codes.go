// SPDX-License-Identifier: Apache-2.0

package remoting

import "strconv"

// Request codes, named as Java's RequestCode in Go spelling (GET_ROUTEINFO_BY_TOPIC is GetRouteInfoByTopic).
const (
	// Data path, served by the broker.
	SendMessage                int32 = 10
	PullMessage                int32 = 11
	QueryMessage               int32 = 12
	QueryBrokerOffset          int32 = 13
	QueryConsumerOffset        int32 = 14
	UpdateConsumerOffset       int32 = 15
	SearchOffsetByTimestamp    int32 = 29
	GetMaxOffset               int32 = 30
	GetMinOffset               int32 = 31
	GetEarliestMsgStoreTime    int32 = 32
	ViewMessageByID            int32 = 33
	HeartBeat                  int32 = 34
	UnregisterClient           int32 = 35
	ConsumerSendMsgBack        int32 = 36
	EndTransaction             int32 = 37
	GetConsumerListByGroup     int32 = 38
	LockBatchMQ                int32 = 41
	UnlockBatchMQ              int32 = 42
	CheckClientConfig          int32 = 46
	GetClientConfig            int32 = 47
	SendMessageV2              int32 = 310
	SendBatchMessage           int32 = 320
	SendReplyMessage           int32 = 324
	SendReplyMessageV2         int32 = 325
	LitePullMessage            int32 = 361
	RecallMessage              int32 = 370
	QueryAssignment            int32 = 400
	SetMessageRequestMode      int32 = 401
	GetAllMessageRequestMode   int32 = 402
	PopMessage                 int32 = 200050
	AckMessage                 int32 = 200051
	BatchAckMessage            int32 = 200151
	PeekMessage                int32 = 200052
	ChangeMessageInvisibleTime int32 = 200053
	Notification               int32 = 200054
	PollingInfo                int32 = 200055
	PopRollback                int32 = 200056

	// Sent by the broker to its clients.
	CheckTransactionState       int32 = 39
	NotifyConsumerIDsChanged    int32 = 40
	ResetConsumerClientOffset   int32 = 220
	GetConsumerStatusFromClient int32 = 221
	GetConsumerRunningInfo      int32 = 307
	ConsumeMessageDirectly      int32 = 309
	PushReplyMessageToClient    int32 = 326

	// Administration of a broker.
	UpdateAndCreateTopic                 int32 = 17
	UpdateAndCreateTopicList             int32 = 18
	GetAllTopicConfig                    int32 = 21
	GetTopicConfigList                   int32 = 22
	GetTopicNameList                     int32 = 23
	UpdateBrokerConfig                   int32 = 25
	GetBrokerConfig                      int32 = 26
	TriggerDeleteFiles                   int32 = 27
	GetBrokerRuntimeInfo                 int32 = 28
	GetAllConsumerOffset                 int32 = 43
	GetAllDelayOffset                    int32 = 45
	UpdateAndCreateACLConfig             int32 = 50
	DeleteACLConfig                      int32 = 51
	GetBrokerClusterACLInfo              int32 = 52
	UpdateGlobalWhiteAddrsConfig         int32 = 53
	GetTimerCheckPoint                   int32 = 60
	GetTimerMetrics                      int32 = 61
	UpdateAndCreateSubscriptionGroup     int32 = 200
	GetAllSubscriptionGroupConfig        int32 = 201
	GetTopicStatsInfo                    int32 = 202
	GetConsumerConnectionList            int32 = 203
	GetProducerConnectionList            int32 = 204
	DeleteSubscriptionGroup              int32 = 207
	GetConsumeStats                      int32 = 208
	ResetConsumerOffsetInBroker          int32 = 212
	DeleteTopicInBroker                  int32 = 215
	InvokeBrokerToResetOffset            int32 = 222
	InvokeBrokerToGetConsumerStatus      int32 = 223
	UpdateAndCreateSubscriptionGroupList int32 = 225
	QueryTopicConsumeByWho               int32 = 300
	RegisterFilterServer                 int32 = 301
	RegisterMessageFilterClass           int32 = 302
	QueryConsumeTimeSpan                 int32 = 303
	GetSystemTopicListFromBroker         int32 = 305
	CleanExpiredConsumeQueue             int32 = 306
	QueryCorrectionOffset                int32 = 308
	CloneGroupOffset                     int32 = 314
	ViewBrokerStatsData                  int32 = 315
	CleanUnusedTopic                     int32 = 316
	GetBrokerConsumeStats                int32 = 317
	QueryConsumeQueue                    int32 = 321
	ResumeCheckHalfMessage               int32 = 323
	GetAllProducerInfo                   int32 = 328
	DeleteExpiredCommitLog               int32 = 329
	QueryTopicsByConsumer                int32 = 343
	QuerySubscriptionByConsumer          int32 = 345
	GetTopicConfig                       int32 = 351
	GetSubscriptionGroupConfig           int32 = 352
	UpdateAndGetGroupForbidden           int32 = 353
	CheckRocksDBCQWriteProgress          int32 = 354
	ExportRocksDBConfigToJSON            int32 = 355
	UpdateAndCreateStaticTopic           int32 = 513
	AddBroker                            int32 = 902
	RemoveBroker                         int32 = 903
	NotifyMinBrokerIDChange              int32 = 905
	ExchangeBrokerHAInfo                 int32 = 906
	GetBrokerHAStatus                    int32 = 907
	ResetMasterFlushOffset               int32 = 908
	GetBrokerEpochCache                  int32 = 1007
	NotifyBrokerRoleChanged              int32 = 1008
	UpdateColdDataFlowCtrConfig          int32 = 2001
	RemoveColdDataFlowCtrConfig          int32 = 2002
	GetColdDataFlowCtrInfo               int32 = 2003
	SetCommitLogReadMode                 int32 = 2004
	AuthCreateUser                       int32 = 3001
	AuthUpdateUser                       int32 = 3002
	AuthDeleteUser                       int32 = 3003
	AuthGetUser                          int32 = 3004
	AuthListUser                         int32 = 3005
	AuthCreateACL                        int32 = 3006
	AuthUpdateACL                        int32 = 3007
	AuthDeleteACL                        int32 = 3008
	AuthGetACL                           int32 = 3009
	AuthListACL                          int32 = 3010

	// Served by the name server.
	PutKVConfig                   int32 = 100
	GetKVConfig                   int32 = 101
	DeleteKVConfig                int32 = 102
	RegisterBroker                int32 = 103
	UnregisterBroker              int32 = 104
	GetRouteInfoByTopic           int32 = 105
	GetBrokerClusterInfo          int32 = 106
	WipeWritePermOfBroker         int32 = 205
	GetAllTopicListFromNameServer int32 = 206
	DeleteTopicInNamesrv          int32 = 216
	RegisterTopicInNamesrv        int32 = 217
	GetKVListByNamespace          int32 = 219
	GetTopicsByCluster            int32 = 224
	GetSystemTopicListFromNs      int32 = 304
	GetUnitTopicList              int32 = 311
	GetHasUnitSubTopicList        int32 = 312
	GetHasUnitSubUnunitTopicList  int32 = 313
	UpdateNamesrvConfig           int32 = 318
	GetNamesrvConfig              int32 = 319
	QueryDataVersion              int32 = 322
	AddWritePermOfBroker          int32 = 327
	GetBrokerMemberGroup          int32 = 901
	BrokerHeartbeat               int32 = 904
)

// Response codes, named as Java's ResponseCode and RemotingSysResponseCode.
const (
	RPCTimeOut                 int32 = -1006
	RPCSendToChannelFailed     int32 = -1004
	RPCAddrIsNull              int32 = -1002
	RPCUnknown                 int32 = -1000
	Success                    int32 = 0
	SystemError                int32 = 1
	SystemBusy                 int32 = 2
	RequestCodeNotSupported    int32 = 3
	TransactionFailed          int32 = 4
	FlushDiskTimeout           int32 = 10
	SlaveNotAvailable          int32 = 11
	FlushSlaveTimeout          int32 = 12
	MessageIllegal             int32 = 13
	ServiceNotAvailable        int32 = 14
	VersionNotSupported        int32 = 15
	NoPermission               int32 = 16
	TopicNotExist              int32 = 17
	TopicExistAlready          int32 = 18
	PullNotFound               int32 = 19
	PullRetryImmediately       int32 = 20
	PullOffsetMoved            int32 = 21
	QueryNotFound              int32 = 22
	SubscriptionParseFailed    int32 = 23
	SubscriptionNotExist       int32 = 24
	SubscriptionNotLatest      int32 = 25
	SubscriptionGroupNotExist  int32 = 26
	FilterDataNotExist         int32 = 27
	FilterDataNotLatest        int32 = 28
	InvalidParameter           int32 = 29
	TransactionShouldCommit    int32 = 200
	TransactionShouldRollback  int32 = 201
	TransactionStateUnknow     int32 = 202
	TransactionStateGroupWrong int32 = 203
	NoBuyerID                  int32 = 204
	NotInCurrentUnit           int32 = 205
	ConsumerNotOnline          int32 = 206
	ConsumeMsgTimeout          int32 = 207
	NoMessage                  int32 = 208
	PollingFull                int32 = 209
	PollingTimeout             int32 = 210
	BrokerNotExist             int32 = 211
	BrokerDispatchNotComplete  int32 = 212
	BroadcastConsumption       int32 = 213
	FlowControl                int32 = 215
	NotLeaderForQueue          int32 = 501
	IllegalOperation           int32 = 604
	GoAway                     int32 = 1500
	UserNotExist               int32 = 3001
	PolicyNotExist             int32 = 3002
)

// RequestCode is one row of the table of request codes.
type RequestCode struct {
	Code int32
	Name string // as in Java
}

// RequestCodes are all codes of 4.9 and 5.3 that clients, tools, brokers and name servers send, by number.
var RequestCodes = []RequestCode{
	{SendMessage, "SEND_MESSAGE"},
	{PullMessage, "PULL_MESSAGE"},
	{QueryMessage, "QUERY_MESSAGE"},
	{QueryBrokerOffset, "QUERY_BROKER_OFFSET"},
	{QueryConsumerOffset, "QUERY_CONSUMER_OFFSET"},
	{UpdateConsumerOffset, "UPDATE_CONSUMER_OFFSET"},
	{UpdateAndCreateTopic, "UPDATE_AND_CREATE_TOPIC"},
	{UpdateAndCreateTopicList, "UPDATE_AND_CREATE_TOPIC_LIST"},
	{GetAllTopicConfig, "GET_ALL_TOPIC_CONFIG"},
	{GetTopicConfigList, "GET_TOPIC_CONFIG_LIST"},
	{GetTopicNameList, "GET_TOPIC_NAME_LIST"},
	{UpdateBrokerConfig, "UPDATE_BROKER_CONFIG"},
	{GetBrokerConfig, "GET_BROKER_CONFIG"},
	{TriggerDeleteFiles, "TRIGGER_DELETE_FILES"},
	{GetBrokerRuntimeInfo, "GET_BROKER_RUNTIME_INFO"},
	{SearchOffsetByTimestamp, "SEARCH_OFFSET_BY_TIMESTAMP"},
	{GetMaxOffset, "GET_MAX_OFFSET"},
	{GetMinOffset, "GET_MIN_OFFSET"},
	{GetEarliestMsgStoreTime, "GET_EARLIEST_MSG_STORETIME"},
	{ViewMessageByID, "VIEW_MESSAGE_BY_ID"},
	{HeartBeat, "HEART_BEAT"},
	{UnregisterClient, "UNREGISTER_CLIENT"},
	{ConsumerSendMsgBack, "CONSUMER_SEND_MSG_BACK"},
	{EndTransaction, "END_TRANSACTION"},
	{GetConsumerListByGroup, "GET_CONSUMER_LIST_BY_GROUP"},
	{CheckTransactionState, "CHECK_TRANSACTION_STATE"},
	{NotifyConsumerIDsChanged, "NOTIFY_CONSUMER_IDS_CHANGED"},
	{LockBatchMQ, "LOCK_BATCH_MQ"},
	{UnlockBatchMQ, "UNLOCK_BATCH_MQ"},
	{GetAllConsumerOffset, "GET_ALL_CONSUMER_OFFSET"},
	{GetAllDelayOffset, "GET_ALL_DELAY_OFFSET"},
	{CheckClientConfig, "CHECK_CLIENT_CONFIG"},
	{GetClientConfig, "GET_CLIENT_CONFIG"},
	{UpdateAndCreateACLConfig, "UPDATE_AND_CREATE_ACL_CONFIG"},
	{DeleteACLConfig, "DELETE_ACL_CONFIG"},
	{GetBrokerClusterACLInfo, "GET_BROKER_CLUSTER_ACL_INFO"},
	{UpdateGlobalWhiteAddrsConfig, "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG"},
	{GetTimerCheckPoint, "GET_TIMER_CHECK_POINT"},
	{GetTimerMetrics, "GET_TIMER_METRICS"},
	{PutKVConfig, "PUT_KV_CONFIG"},
	{GetKVConfig, "GET_KV_CONFIG"},
	{DeleteKVConfig, "DELETE_KV_CONFIG"},
	{RegisterBroker, "REGISTER_BROKER"},
	{UnregisterBroker, "UNREGISTER_BROKER"},
	{GetRouteInfoByTopic, "GET_ROUTEINFO_BY_TOPIC"},
	{GetBrokerClusterInfo, "GET_BROKER_CLUSTER_INFO"},
	{UpdateAndCreateSubscriptionGroup, "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP"},
	{GetAllSubscriptionGroupConfig, "GET_ALL_SUBSCRIPTIONGROUP_CONFIG"},
	{GetTopicStatsInfo, "GET_TOPIC_STATS_INFO"},
	{GetConsumerConnectionList, "GET_CONSUMER_CONNECTION_LIST"},
	{GetProducerConnectionList, "GET_PRODUCER_CONNECTION_LIST"},
	{WipeWritePermOfBroker, "WIPE_WRITE_PERM_OF_BROKER"},
	{GetAllTopicListFromNameServer, "GET_ALL_TOPIC_LIST_FROM_NAMESERVER"},
	{DeleteSubscriptionGroup, "DELETE_SUBSCRIPTIONGROUP"},
	{GetConsumeStats, "GET_CONSUME_STATS"},
	{ResetConsumerOffsetInBroker, "RESET_CONSUMER_OFFSET_IN_BROKER"},
	{DeleteTopicInBroker, "DELETE_TOPIC_IN_BROKER"},
	{DeleteTopicInNamesrv, "DELETE_TOPIC_IN_NAMESRV"},
	{RegisterTopicInNamesrv, "REGISTER_TOPIC_IN_NAMESRV"},
	{GetKVListByNamespace, "GET_KVLIST_BY_NAMESPACE"},
	{ResetConsumerClientOffset, "RESET_CONSUMER_CLIENT_OFFSET"},
	{GetConsumerStatusFromClient, "GET_CONSUMER_STATUS_FROM_CLIENT"},
	{InvokeBrokerToResetOffset, "INVOKE_BROKER_TO_RESET_OFFSET"},
	{InvokeBrokerToGetConsumerStatus, "INVOKE_BROKER_TO_GET_CONSUMER_STATUS"},
	{GetTopicsByCluster, "GET_TOPICS_BY_CLUSTER"},
	{UpdateAndCreateSubscriptionGroupList, "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST"},
	{QueryTopicConsumeByWho, "QUERY_TOPIC_CONSUME_BY_WHO"},
	{RegisterFilterServer, "REGISTER_FILTER_SERVER"},
	{RegisterMessageFilterClass, "REGISTER_MESSAGE_FILTER_CLASS"},
	{QueryConsumeTimeSpan, "QUERY_CONSUME_TIME_SPAN"},
	{GetSystemTopicListFromNs, "GET_SYSTEM_TOPIC_LIST_FROM_NS"},
	{GetSystemTopicListFromBroker, "GET_SYSTEM_TOPIC_LIST_FROM_BROKER"},
	{CleanExpiredConsumeQueue, "CLEAN_EXPIRED_CONSUMEQUEUE"},
	{GetConsumerRunningInfo, "GET_CONSUMER_RUNNING_INFO"},
	{QueryCorrectionOffset, "QUERY_CORRECTION_OFFSET"},
	{ConsumeMessageDirectly, "CONSUME_MESSAGE_DIRECTLY"},
	{SendMessageV2, "SEND_MESSAGE_V2"},
	{GetUnitTopicList, "GET_UNIT_TOPIC_LIST"},
	{GetHasUnitSubTopicList, "GET_HAS_UNIT_SUB_TOPIC_LIST"},
	{GetHasUnitSubUnunitTopicList, "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST"},
	{CloneGroupOffset, "CLONE_GROUP_OFFSET"},
	{ViewBrokerStatsData, "VIEW_BROKER_STATS_DATA"},
	{CleanUnusedTopic, "CLEAN_UNUSED_TOPIC"},
	{GetBrokerConsumeStats, "GET_BROKER_CONSUME_STATS"},
	{UpdateNamesrvConfig, "UPDATE_NAMESRV_CONFIG"},
	{GetNamesrvConfig, "GET_NAMESRV_CONFIG"},
	{SendBatchMessage, "SEND_BATCH_MESSAGE"},
	{QueryConsumeQueue, "QUERY_CONSUME_QUEUE"},
	{QueryDataVersion, "QUERY_DATA_VERSION"},
	{ResumeCheckHalfMessage, "RESUME_CHECK_HALF_MESSAGE"},
	{SendReplyMessage, "SEND_REPLY_MESSAGE"},
	{SendReplyMessageV2, "SEND_REPLY_MESSAGE_V2"},
	{PushReplyMessageToClient, "PUSH_REPLY_MESSAGE_TO_CLIENT"},
	{AddWritePermOfBroker, "ADD_WRITE_PERM_OF_BROKER"},
	{GetAllProducerInfo, "GET_ALL_PRODUCER_INFO"},
	{DeleteExpiredCommitLog, "DELETE_EXPIRED_COMMITLOG"},
	{QueryTopicsByConsumer, "QUERY_TOPICS_BY_CONSUMER"},
	{QuerySubscriptionByConsumer, "QUERY_SUBSCRIPTION_BY_CONSUMER"},
	{GetTopicConfig, "GET_TOPIC_CONFIG"},
	{GetSubscriptionGroupConfig, "GET_SUBSCRIPTIONGROUP_CONFIG"},
	{UpdateAndGetGroupForbidden, "UPDATE_AND_GET_GROUP_FORBIDDEN"},
	{CheckRocksDBCQWriteProgress, "CHECK_ROCKSDB_CQ_WRITE_PROGRESS"},
	{ExportRocksDBConfigToJSON, "EXPORT_ROCKSDB_CONFIG_TO_JSON"},
	{LitePullMessage, "LITE_PULL_MESSAGE"},
	{RecallMessage, "RECALL_MESSAGE"},
	{QueryAssignment, "QUERY_ASSIGNMENT"},
	{SetMessageRequestMode, "SET_MESSAGE_REQUEST_MODE"},
	{GetAllMessageRequestMode, "GET_ALL_MESSAGE_REQUEST_MODE"},
	{UpdateAndCreateStaticTopic, "UPDATE_AND_CREATE_STATIC_TOPIC"},
	{GetBrokerMemberGroup, "GET_BROKER_MEMBER_GROUP"},
	{AddBroker, "ADD_BROKER"},
	{RemoveBroker, "REMOVE_BROKER"},
	{BrokerHeartbeat, "BROKER_HEARTBEAT"},
	{NotifyMinBrokerIDChange, "NOTIFY_MIN_BROKER_ID_CHANGE"},
	{ExchangeBrokerHAInfo, "EXCHANGE_BROKER_HA_INFO"},
	{GetBrokerHAStatus, "GET_BROKER_HA_STATUS"},
	{ResetMasterFlushOffset, "RESET_MASTER_FLUSH_OFFSET"},
	{GetBrokerEpochCache, "GET_BROKER_EPOCH_CACHE"},
	{NotifyBrokerRoleChanged, "NOTIFY_BROKER_ROLE_CHANGED"},
	{UpdateColdDataFlowCtrConfig, "UPDATE_COLD_DATA_FLOW_CTR_CONFIG"},
	{RemoveColdDataFlowCtrConfig, "REMOVE_COLD_DATA_FLOW_CTR_CONFIG"},
	{GetColdDataFlowCtrInfo, "GET_COLD_DATA_FLOW_CTR_INFO"},
	{SetCommitLogReadMode, "SET_COMMITLOG_READ_MODE"},
	{AuthCreateUser, "AUTH_CREATE_USER"},
	{AuthUpdateUser, "AUTH_UPDATE_USER"},
	{AuthDeleteUser, "AUTH_DELETE_USER"},
	{AuthGetUser, "AUTH_GET_USER"},
	{AuthListUser, "AUTH_LIST_USER"},
	{AuthCreateACL, "AUTH_CREATE_ACL"},
	{AuthUpdateACL, "AUTH_UPDATE_ACL"},
	{AuthDeleteACL, "AUTH_DELETE_ACL"},
	{AuthGetACL, "AUTH_GET_ACL"},
	{AuthListACL, "AUTH_LIST_ACL"},
	{PopMessage, "POP_MESSAGE"},
	{AckMessage, "ACK_MESSAGE"},
	{PeekMessage, "PEEK_MESSAGE"},
	{ChangeMessageInvisibleTime, "CHANGE_MESSAGE_INVISIBLETIME"},
	{Notification, "NOTIFICATION"},
	{PollingInfo, "POLLING_INFO"},
	{PopRollback, "POP_ROLLBACK"},
	{BatchAckMessage, "BATCH_ACK_MESSAGE"},
}

// ResponseCode is one row of the table of response codes.
type ResponseCode struct {
	Code        int32
	Name        string // as in Java
	Retriable   bool   // the Java 5.3 producer sends the message again, to another queue
	Description string
}

// ResponseCodes are all codes that brokers and name servers answer, by number.
var ResponseCodes = []ResponseCode{
	{RPCTimeOut, "RPC_TIME_OUT", false, "A call between brokers got no answer in time (5.x, internal)."},
	{RPCSendToChannelFailed, "RPC_SEND_TO_CHANNEL_FAILED", false, "A call between brokers could not be sent (5.x, internal)."},
	{RPCAddrIsNull, "RPC_ADDR_IS_NULL", false, "A call between brokers had no address (5.x, internal)."},
	{RPCUnknown, "RPC_UNKNOWN", false, "A call between brokers failed (5.x, internal)."},
	{Success, "SUCCESS", false, "Done."},
	{SystemError, "SYSTEM_ERROR", true, "The request failed; the remark says why."},
	{SystemBusy, "SYSTEM_BUSY", true, "Flow control: nothing was stored, try again later."},
	{RequestCodeNotSupported, "REQUEST_CODE_NOT_SUPPORTED", false, "No processor serves this request code."},
	{TransactionFailed, "TRANSACTION_FAILED", false, "The transaction failed."},
	{FlushDiskTimeout, "FLUSH_DISK_TIMEOUT", false, "Stored, but the disk did not confirm it in time."},
	{SlaveNotAvailable, "SLAVE_NOT_AVAILABLE", false, "Stored, but no slave is close enough to copy it."},
	{FlushSlaveTimeout, "FLUSH_SLAVE_TIMEOUT", false, "Stored, but no slave confirmed it in time."},
	{MessageIllegal, "MESSAGE_ILLEGAL", false, "Size, properties or topic of the message are not allowed."},
	{ServiceNotAvailable, "SERVICE_NOT_AVAILABLE", true, "The store takes no messages now: starting, stopping, read-only, or its disk is full."},
	{VersionNotSupported, "VERSION_NOT_SUPPORTED", false, "The sender's version is too old for this request."},
	{NoPermission, "NO_PERMISSION", true, "Broker, topic or group do not permit this."},
	{TopicNotExist, "TOPIC_NOT_EXIST", true, "The topic is not known here."},
	{TopicExistAlready, "TOPIC_EXIST_ALREADY", false, "The topic is there already."},
	{PullNotFound, "PULL_NOT_FOUND", false, "No message at or behind this offset yet."},
	{PullRetryImmediately, "PULL_RETRY_IMMEDIATELY", false, "Nothing matched; go on at the next offset given."},
	{PullOffsetMoved, "PULL_OFFSET_MOVED", false, "The offset is outside the queue; go on at the next offset given."},
	{QueryNotFound, "QUERY_NOT_FOUND", false, "Nothing is stored under this key, id or offset."},
	{SubscriptionParseFailed, "SUBSCRIPTION_PARSE_FAILED", false, "The subscription expression cannot be parsed."},
	{SubscriptionNotExist, "SUBSCRIPTION_NOT_EXIST", false, "The group has not announced this subscription."},
	{SubscriptionNotLatest, "SUBSCRIPTION_NOT_LATEST", false, "The group has announced a newer subscription."},
	{SubscriptionGroupNotExist, "SUBSCRIPTION_GROUP_NOT_EXIST", false, "The consumer group is not known here."},
	{FilterDataNotExist, "FILTER_DATA_NOT_EXIST", false, "No filter expression is registered for this consumer."},
	{FilterDataNotLatest, "FILTER_DATA_NOT_LATEST", false, "A newer filter expression is registered for this consumer."},
	{InvalidParameter, "INVALID_PARAMETER", false, "A header field has a value that is not allowed (5.x)."},
	{TransactionShouldCommit, "TRANSACTION_SHOULD_COMMIT", false, "The transaction is to be committed."},
	{TransactionShouldRollback, "TRANSACTION_SHOULD_ROLLBACK", false, "The transaction is to be rolled back."},
	{TransactionStateUnknow, "TRANSACTION_STATE_UNKNOW", false, "The state of the transaction is not known."},
	{TransactionStateGroupWrong, "TRANSACTION_STATE_GROUP_WRONG", false, "The transaction belongs to another producer group."},
	{NoBuyerID, "NO_BUYER_ID", true, "The message carries no buyer id."},
	{NotInCurrentUnit, "NOT_IN_CURRENT_UNIT", true, "The message belongs to another unit."},
	{ConsumerNotOnline, "CONSUMER_NOT_ONLINE", false, "No consumer of this group is connected."},
	{ConsumeMsgTimeout, "CONSUME_MSG_TIMEOUT", false, "The consumer did not answer in time."},
	{NoMessage, "NO_MESSAGE", false, "There is no such message."},
	{PollingFull, "POLLING_FULL", false, "Too many long polls are held (5.x; 4.9 has UPDATE_AND_CREATE_ACL_CONFIG_FAILED here)."},
	{PollingTimeout, "POLLING_TIMEOUT", false, "The long poll ended with nothing (5.x; 4.9 has DELETE_ACL_CONFIG_FAILED here)."},
	{BrokerNotExist, "BROKER_NOT_EXIST", false, "No such broker is registered (5.x; 4.9 has UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED here)."},
	{BrokerDispatchNotComplete, "BROKER_DISPATCH_NOT_COMPLETE", false, "The broker has not yet dispatched all of its log (5.x)."},
	{BroadcastConsumption, "BROADCAST_CONSUMPTION", false, "The group consumes by broadcast (5.x)."},
	{FlowControl, "FLOW_CONTROL", false, "Consumers are slowed down; pull again shortly."},
	{NotLeaderForQueue, "NOT_LEADER_FOR_QUEUE", false, "Another broker leads this queue of a static topic (5.x)."},
	{IllegalOperation, "ILLEGAL_OPERATION", false, "The operation is not allowed in this state (5.x)."},
	{GoAway, "GO_AWAY", true, "The server is about to stop: connect anew and ask again (5.x)."},
	{UserNotExist, "USER_NOT_EXIST", false, "There is no such user (5.x)."},
	{PolicyNotExist, "POLICY_NOT_EXIST", false, "There is no such policy (5.x)."},
}

var (
	requestNames  = make(map[int32]string, len(RequestCodes))
	responseNames = make(map[int32]string, len(ResponseCodes))
)

func init() {
	for _, r := range RequestCodes {
		requestNames[r.Code] = r.Name
	}
	for _, r := range ResponseCodes {
		responseNames[r.Code] = r.Name
	}
}

// RequestName is Java's name of a request code, or its number in text.
func RequestName(code int32) string { return nameOf(requestNames, code) }

// ResponseName is Java's name of a response code, or its number in text.
func ResponseName(code int32) string { return nameOf(responseNames, code) }

func nameOf(names map[int32]string, code int32) string {
	if name, ok := names[code]; ok {
		return name
	}
	return strconv.Itoa(int(code))
}
